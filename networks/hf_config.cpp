#include "networks/hf_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/errors.hpp"

namespace parsim::networks::hugging_face {

struct Config::Values {
  nlohmann::json json;
  std::set<std::string> asked;

  auto find(std::string_view key) { return json.find(*asked.emplace(key).first); }
};

namespace {

// Keys of transformers' PretrainedConfig and of the classes of model_types[] that leave shapes
// alone: token ids, rates, initial values, text generation, reporting, rotary embedding.
constexpr std::string_view shapeless_ends[] = {"_token_id", "_token_ids", "_token_index", "_eps",
                                               "_epsilon",  "_dropout",   "_pdrop"};
constexpr std::string_view shapeless_beginnings[] = {
    "router_",      "routed_",      "_",
    "initializer_", "rope_",        "rotary_",
    "summary_",     "output_",      "pooler_",
    "use_return_",  "generation_",  "task_",
    "torch",        "transformers", "no_repeat_",
    "num_beam",     "num_return_",  "encoder_no_repeat_",
    "finetuning_",  "problem_",     "label2id",
    "id2label"};
constexpr std::string_view shapeless[] = {"architectures",
                                          "auto_map",
                                          "bad_words_ids",
                                          "begin_suppress_tokens",
                                          "chunk_size_feed_forward",
                                          "do_sample",
                                          "dtype",
                                          "early_stopping",
                                          "encoder_stride",
                                          "ep_size",
                                          "forced_decoder_ids",
                                          "gradient_checkpointing",
                                          "is_decoder",
                                          "is_encoder_decoder",
                                          "layer_types",
                                          "max_length",
                                          "max_window_layers",
                                          "min_length",
                                          "n_ctx",
                                          "n_group",
                                          "num_labels",
                                          "prefix",
                                          "pretraining_tp",
                                          "remove_invalid_values",
                                          "reorder_and_upcast_attn",
                                          "return_dict",
                                          "return_dict_in_generate",
                                          "scale_attn_by_inverse_layer_idx",
                                          "scale_attn_weights",
                                          "seq_aux",
                                          "suppress_tokens",
                                          "tie_weights_",
                                          "tie_word_embeddings",
                                          "tokenizer_class",
                                          "top_k",
                                          "topk_group",
                                          "use_bfloat16",
                                          "use_cache"};

bool is_shapeless(std::string_view key) {
  const auto begins = [&](std::string_view word) { return key.starts_with(word); };
  const auto ends = [&](std::string_view word) { return key.ends_with(word); };
  return std::find(std::begin(shapeless), std::end(shapeless), key) != std::end(shapeless) ||
         std::any_of(std::begin(shapeless_beginnings), std::end(shapeless_beginnings), begins) ||
         std::any_of(std::begin(shapeless_ends), std::end(shapeless_ends), ends);
}

/// Counts, flags that are set, lists and objects may; rates and names may not, except the type of
/// position embedding.
bool may_be_shape(const std::string& key, const nlohmann::json& value) {
  if (key == "position_embedding_type") return value.is_string() && value != "absolute";
  if (value.is_number_integer()) return value > 0;
  if (value.is_boolean()) return value.get<bool>();
  return value.is_structured() && !value.empty();
}

}  // namespace

Config::Config(std::string text, std::string file)
    : text_(std::move(text)), file_(std::move(file)), values_(std::make_unique<Values>()) {
  try {
    values_->json = nlohmann::json::parse(text_);
  } catch (const nlohmann::json::parse_error& error) {
    const std::size_t at = error.byte == 0 ? 0 : std::min(error.byte - 1, text_.size());
    const std::string_view before = std::string_view(text_).substr(0, at);
    const auto line = std::count(before.begin(), before.end(), '\n') + 1;
    const std::string_view what = error.what();
    const std::size_t colon = what.find(": ");
    throw InputError(
        fmt::format("{}:{}:{}", file_, line, before.size() - (before.rfind('\n') + 1) + 1),
        what.substr(colon == std::string_view::npos ? 0 : colon + 2), "accepted: JSON");
  }
  if (!values_->json.is_object()) {
    throw InputError(file_, fmt::format("the top level is of type {}", values_->json.type_name()),
                     "accepted: an object, as in a Hugging Face config.json");
  }
}

Config::~Config() = default;

std::string Config::where(std::string_view key) const {
  const std::string quoted = fmt::format("\"{}\"", key);
  for (std::size_t at = text_.find(quoted); at != std::string::npos;
       at = text_.find(quoted, at + 1)) {
    const std::size_t colon = text_.find_first_not_of(" \t\r\n", at + quoted.size());
    if (colon == std::string::npos || text_[colon] != ':') continue;
    const auto line =
        std::count(text_.begin(), text_.begin() + static_cast<std::ptrdiff_t>(at), '\n') + 1;
    return fmt::format("{}:{}:{}", file_, line, key);
  }
  return fmt::format("{}:{}", file_, key);
}

bool Config::has(std::string_view key) const {
  const auto found = values_->find(key);
  return found != values_->json.end() && !found->is_null();
}

void Config::refuse(std::string_view key, std::string_view accepted) const {
  const auto found = values_->find(key);
  if (found == values_->json.end()) {
    std::vector<std::string> keys;
    for (const auto& [name, value] : values_->json.items()) keys.push_back(name);
    throw InputError(where(key), "missing",
                     fmt::format("accepted: {}{}", accepted, did_you_mean(key, keys)));
  }
  // Lists and objects are only named: printing recurses as deep as the file does.
  const std::string value =
      found->is_structured()
          ? fmt::format("an {}", found->type_name())
          : found->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  throw InputError(where(key), fmt::format("{:.60}", value), fmt::format("accepted: {}", accepted));
}

std::int64_t Config::whole(std::string_view key, std::int64_t least, std::int64_t most) const {
  const auto found = values_->find(key);
  const bool fits = found != values_->json.end() && found->is_number_integer() &&
                    !(found->is_number_unsigned() &&
                      found->get<std::uint64_t>() > static_cast<std::uint64_t>(most)) &&
                    found->get<std::int64_t>() >= least && found->get<std::int64_t>() <= most;
  if (!fits) refuse(key, fmt::format("a whole number from {} to {}", least, most));
  return found->get<std::int64_t>();
}

std::int64_t Config::count(std::string_view key, std::int64_t most) const {
  return whole(key, 1, most);
}

std::int64_t Config::number_or(std::string_view key, std::int64_t fallback,
                               std::int64_t most) const {
  return has(key) ? whole(key, 0, most) : fallback;
}

std::int64_t Config::count_or(std::string_view key, std::int64_t fallback,
                              std::int64_t most) const {
  return has(key) ? count(key, most) : fallback;
}

double Config::rate_or(std::string_view key, double fallback) const {
  if (!has(key)) return fallback;
  const auto found = values_->find(key);
  if (!found->is_number() || !(found->get<double>() >= 0) || found->get<double>() >= 1) {
    refuse(key, "a number from 0 to below 1");
  }
  return found->get<double>();
}

bool Config::flag_or(std::string_view key, bool fallback) const {
  if (!has(key)) return fallback;
  const auto found = values_->find(key);
  if (!found->is_boolean()) refuse(key, "true or false");
  return found->get<bool>();
}

std::string Config::text(std::string_view key) const {
  const auto found = values_->find(key);
  if (found == values_->json.end() || !found->is_string()) refuse(key, "a string");
  return found->get<std::string>();
}

std::string Config::text_or(std::string_view key, std::string_view fallback) const {
  return has(key) ? text(key) : std::string(fallback);
}

std::int64_t Config::entries(std::string_view key) const {
  if (!has(key)) return 0;
  const auto found = values_->find(key);
  if (!found->is_object()) refuse(key, "an object");
  return static_cast<std::int64_t>(found->size());
}

std::vector<std::string> Config::unread_shapes() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : values_->json.items()) {
    if (values_->asked.contains(key) || is_shapeless(key) || !may_be_shape(key, value)) continue;
    keys.push_back(key);
  }
  return keys;
}

}  // namespace parsim::networks::hugging_face
