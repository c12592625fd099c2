#include "networks/hf_config.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>

#include "core/errors.hpp"
#include "networks/networks.hpp"
#include "networks/transformer_blocks.hpp"

namespace parsim::networks::hugging_face {

namespace {

using json::Limits, json::Rule;

template <class T>
void add(json::Keys& keys, const Rule& rule, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    keys.keys.push_back(json::key<std::optional<T>>(name, rule));
  }
}

/// Keys that an entry lists together have the same range, and mostly the same meaning in several
/// types of model.
const json::Keys& config_keys() {
  using namespace zoo;
  static const json::Keys keys = [] {
    json::Keys made{{json::required<ModelType>("model_type")}, {}, true};
    const auto counts = [&](Limits limits, std::string_view meaning,
                            std::initializer_list<std::string_view> names) {
      add<std::int64_t>(made, {limits, meaning}, names);
    };
    counts({1, most_hidden}, "hidden size", {"hidden_size", "n_embd", "n_embed", "dim"});
    counts({1, most_blocks}, "blocks", {"num_hidden_layers", "n_layer", "n_layers"});
    counts({1, most_heads}, "attention heads", {"num_attention_heads", "n_head", "n_heads"});
    counts({1, most_heads}, "heads of keys and values", {"num_key_value_heads", "num_kv_heads"});
    counts({1, most_hidden}, "hidden size of a head", {"head_dim"});
    counts({1, most_ffn_hidden}, "hidden size of the feed-forward",
           {"intermediate_size", "n_inner", "hidden_dim", "ffn_dim", "ffn_hidden_size"});
    counts({1, most_seq_length}, "most tokens of a sample",
           {"max_position_embeddings", "n_positions", "seq_length"});
    counts({1, most_hidden}, "of embeddings: as the hidden size", {"word_embed_proj_dim"});
    counts({1, 2}, "norms of a block in parallel", {"num_ln_in_parallel_attn"});
    counts({1, most_seq_length}, "tokens that a token sees, itself among them", {"sliding_window"});
    counts({1, most_blocks}, "one block of so many has no window", {"sliding_window_pattern"});
    counts({0, most_blocks}, "the first block with a window, or that has none again",
           {"max_window_layers"});
    counts({1, most_blocks}, "one block of so many has no rotary embedding",
           {"no_rope_layer_interval"});
    add<std::vector<std::int64_t>>(made, {{0, 1}, "of each block: has a rotary embedding"},
                                   {"no_rope_layers"});
    counts({1, most_vocab_size}, "rows of a table", {"vocab_size", "type_vocab_size"});
    counts({1, most_vocab_size}, "classes; absent: as many as id2label has", {"num_labels"});
    counts({1, 1 << 14}, "pixels in a row", {"image_size", "patch_size"});
    counts({1, most_hidden}, "of an image", {"num_channels"});
    counts({1, most_experts}, "of a block",
           {"num_local_experts", "num_experts", "n_routed_experts"});
    counts({1, most_experts}, "experts that a token goes to", {"num_experts_per_tok"});
    counts({1, most_ffn_hidden}, "hidden size of an expert",
           {"moe_intermediate_size", "shared_expert_intermediate_size"});
    counts({0, most_ffn_hidden}, "that every token goes to", {"n_shared_experts"});
    counts({1, most_blocks}, "one block of so many has experts",
           {"decoder_sparse_step", "moe_layer_freq"});
    counts({0, most_blocks}, "the first blocks, without experts", {"first_k_dense_replace"});
    add<std::vector<std::int64_t>>(made, {{0, most_blocks}, "blocks without experts"},
                                   {"mlp_only_layers"});
    counts({0, most_blocks}, "not modelled", {"num_nextn_predict_layers"});
    counts({1, most_hidden}, "of latent attention",
           {"kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim"});
    counts({0, most_hidden}, "of latent attention; 0: queries are not compressed", {"q_lora_rank"});
    add<Rate>(
        made, "after attention and feed-forward",
        {"hidden_dropout_prob", "resid_pdrop", "dropout", "hidden_dropout", "residual_dropout"});
    add<Rate>(made, "of attention scores",
              {"attention_probs_dropout_prob", "attn_pdrop", "attention_dropout"});
    add<Rate>(made, "of embeddings", {"embd_pdrop", "embedding_dropout"});
    add<bool>(made, {},
              {"attention_bias", "qkv_bias", "mlp_bias", "bias", "use_bias", "enable_bias"});
    add<bool>(made, "positions by the distance of tokens", {"alibi"});
    add<bool>(made, "one head of keys and values", {"multi_query"});
    add<bool>(made, "several heads of keys and values", {"new_decoder_architecture"});
    add<bool>(made, "norms before attention and feed-forward", {"do_layer_norm_before"});
    add<bool>(made, "logits use the weights of the embeddings", {"tie_word_embeddings"});
    add<bool>(made, "attention and feed-forward read the same",
              {"use_parallel_residual", "parallel_attn"});
    add<bool>(made, "whether sliding_window holds", {"use_sliding_window"});
    add<bool>(made, "weights of a token's experts have the sum 1", {"norm_topk_prob"});
    add<HiddenAct>(made, "of the feed-forward",
                   {"hidden_act", "activation_function", "activation", "hidden_activation"});
    add<AttentionKernels>(made, "absent: as the command line has it",
                          {"attn_implementation", "_attn_implementation"});
    add<Scoring>(made, "of experts", {"scoring_func"});
    add<Members>(made, "names of classes", {"id2label"});
    add<std::vector<std::string>>(made, "classes of transformers", {"architectures"});
    add<std::vector<std::string>>(made, "attention of each block", {"layer_types"});
    add<Members>(made, "ignored", {"quantization_config"});
    add<double>(made, "not modelled", {"attn_logit_softcapping", "final_logit_softcapping"});
    add<Members>(made, "of a model of several modalities: read in its place", {"text_config"});
    return made;
  }();
  return keys;
}

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
constexpr std::string_view shapeless[] = {"auto_map",
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
                                          "max_length",
                                          "max_window_layers",
                                          "min_length",
                                          "n_ctx",
                                          "n_group",
                                          "no_rope_layer_interval",
                                          "no_rope_layers",
                                          "num_labels",
                                          "offset_alibi",
                                          "original_max_position_embeddings",
                                          "prefix",
                                          "pretraining_tp",
                                          "query_pre_attn_scalar",
                                          "remove_invalid_values",
                                          "reorder_and_upcast_attn",
                                          "return_dict",
                                          "return_dict_in_generate",
                                          "scale_attn_by_inverse_layer_idx",
                                          "scale_attn_weights",
                                          "seq_aux",
                                          "sliding_window_pattern",
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
bool may_be_shape(const std::string& key, const json::Node& value) {
  using json::Kind;
  if (key == "position_embedding_type") {
    return value.kind() == Kind::text && value.text() != "absolute";
  }
  if (value.kind() == Kind::integer) return value.integer(json::any_integer) > 0;
  if (value.kind() == Kind::boolean) return value.boolean();
  return value.children() > 0;
}

}  // namespace

void get_special(const json::Node& node, Rate& rate) {
  rate.value = node.number(std::numeric_limits<double>::lowest());
  if (rate.value < 0 || rate.value >= 1) node.refuse("accepted: a number from 0 to below 1");
}

void put_special_schema(json::Writer& out, const Rate&) {
  out.key("type").text("number");
  out.key("minimum").integer(0);
  out.key("exclusiveMaximum").integer(1);
}

void get_special(const json::Node& node, Members& members) {
  if (node.kind() != json::Kind::object) node.refuse("accepted: an object");
  members.count = static_cast<std::int64_t>(node.children());
}

void put_special_schema(json::Writer& out, const Members&) { out.key("type").text("object"); }

Config::Config(const std::string& text, std::string file)
    : file_(std::move(file)), document_(text, file_, json::Origin::elsewhere) {
  const json::Node root = document_.root();
  if (root.kind() != json::Kind::object) {
    root.refuse("accepted: an object, as in a Hugging Face config.json");
  }
  const auto type = root.find("model_type"), part = root.find("text_config");
  if (!type || type->kind() != json::Kind::text || is_model_type(type->text())) return;
  if (part && part->kind() == json::Kind::object && part->find("model_type")) {
    text_of_ = type->text();
  }
}

json::Node Config::top() const {
  const json::Node root = document_.root();
  return text_of_.empty() ? root : *root.find("text_config");
}

std::optional<json::Node> Config::find(std::string_view key) const {
  asked_.emplace(key);
  return top().find(key);
}

std::string Config::where(std::string_view key) const {
  const auto node = find(key);
  return node ? node->location() : fmt::format("{}:{}", file_, key);
}

void Config::require(std::string_view key) const {
  static_cast<void>(required(key, "its value, or null for none"));
}

bool Config::has(std::string_view key) const {
  const auto node = find(key);
  return node && node->kind() != json::Kind::null;
}

bool Config::is_null(std::string_view key) const {
  const auto node = find(key);
  return node && node->kind() == json::Kind::null;
}

json::Node Config::required(std::string_view key, std::string_view accepted) const {
  if (const auto node = find(key)) return *node;
  std::vector<std::string> keys;
  top().each_member([&](const std::string& name, auto&&) { keys.push_back(name); });
  throw InputError(where(key), "missing",
                   fmt::format("accepted: {}{}", accepted, did_you_mean(key, keys)));
}

Rule Config::rule(std::string_view key, std::int64_t most) {
  Rule rule = config_keys().rule(key);
  rule.limits.most = std::min(rule.limits.most, most);
  return rule;
}

ModelType Config::model_type() const {
  ModelType type;
  get_special(required("model_type", "a string"), type);
  return type;
}

std::int64_t Config::count(std::string_view key, std::int64_t most) const {
  const Limits limits = rule(key, most).limits;
  const auto accepted = fmt::format("a whole number from {} to {}", limits.least, limits.most);
  return required(key, accepted).integer(limits);
}

std::vector<std::string> Config::unread_shapes() const {
  std::vector<std::string> keys;
  top().each_member([&](const std::string& key, const json::Node& value) {
    if (asked_.contains(key) || is_shapeless(key) || !may_be_shape(key, value)) return;
    keys.push_back(key);
  });
  std::sort(keys.begin(), keys.end());
  return keys;
}

}  // namespace parsim::networks::hugging_face

namespace parsim::networks {

std::string config_schema() {
  const json::Keys& keys = hugging_face::config_keys();
  json::Writer out;
  out.open_object();
  out.key("title").text("A config.json of Hugging Face, as far as it is read");
  out.key("anyOf").open_array();
  out.open_object();
  json::put_table_schema(out, keys);
  out.close_object();
  // Of a model of several modalities.
  out.open_object();
  out.key("type").text("object");
  out.key("required").open_array();
  out.text("text_config");
  out.close_array();
  out.key("properties").open_object();
  out.key("text_config").open_object();
  json::put_table_schema(out, keys);
  out.close_object();
  out.close_object();
  out.close_object();
  out.close_array();
  out.close_object();
  return out.take();
}

}  // namespace parsim::networks
