#include "networks/hf_design.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"

namespace parsim::networks::hugging_face {

using namespace zoo;

namespace {

/// Fused unless "attn_implementation" is "eager"; transformers' own default is fused, too.
bool attention_is_fused(const Config& config, const NetworkDefaults& defaults) {
  const std::string_view key =
      config.has("_attn_implementation") ? "_attn_implementation" : "attn_implementation";
  if (!config.has(key)) return defaults.fused_attention;
  const std::string name = config.text(key);
  const std::vector<std::string> known{"eager", "sdpa", "flash_attention_2", "flash_attention_3",
                                       "flex_attention"};
  if (std::find(known.begin(), known.end(), name) != known.end()) return name != "eager";
  throw InputError(config.where(key), fmt::format("'{}'", name),
                   fmt::format("accepted: {}{}", join(known), did_you_mean(name, known)));
}

}  // namespace

std::string activation_of(const Config& config, std::string_view key, std::string_view fallback) {
  const std::string name = config.text_or(key, fallback);
  const std::pair<std::string, std::string> known[] = {
      {"gelu", "gelu"},       {"gelu_new", "gelu"},
      {"gelu_fast", "gelu"},  {"gelu_pytorch_tanh", "gelu"},
      {"quick_gelu", "gelu"}, {"silu", "silu"},
      {"swish", "silu"},      {"relu", "relu"},
      {"tanh", "tanh"}};
  std::vector<std::string> names;
  for (const auto& [word, function] : known) {
    if (word == name) return function;
    names.push_back(word);
  }
  throw InputError(config.where(key), fmt::format("'{}'", name),
                   fmt::format("accepted: {}{}", join(names), did_you_mean(name, names)));
}

void read_size(Design& design, std::string_view hidden, std::string_view blocks,
               std::string_view heads) {
  const Config& config = design.config;
  design.hidden = config.count(hidden, most_hidden);
  design.blocks = config.count(blocks, most_blocks);
  SelfAttention& attention = design.attention;
  attention.fused = attention_is_fused(config, design.defaults);
  attention.heads = attention.kv_heads = config.count(heads, most_heads);
  if (!config.has("head_dim")) check_heads(attention.heads, design.hidden, config.where(heads));
  attention.head_dim = design.hidden / attention.heads;
}

std::int64_t seq_length_of(const Design& design, std::string_view key, std::int64_t reserved) {
  const std::int64_t most = design.config.count(key, most_seq_length) - reserved;
  if (design.seq_length > most || most < 1) {
    throw InputError("--dim seq_length", fmt::format("{} tokens", design.seq_length),
                     fmt::format("accepted: at most {}, the positions of the model", most));
  }
  return design.seq_length == 0 ? most : design.seq_length;
}

}  // namespace parsim::networks::hugging_face
