#include "networks/hf_design.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "core/text.hpp"

namespace parsim::networks::hugging_face {

using namespace zoo;

namespace {

/// Fused unless "attn_implementation" is "eager"; transformers' own default is fused, too.
bool attention_is_fused(const Config& config, const NetworkDefaults& defaults) {
  const std::string_view key =
      config.has("_attn_implementation") ? "_attn_implementation" : "attn_implementation";
  if (!config.has(key)) return defaults.fused_attention;
  return config.value_or(key, AttentionKernels::sdpa) != AttentionKernels::eager;
}

}  // namespace

std::string activation_of(const Config& config, std::string_view key, HiddenAct fallback) {
  const HiddenAct name = config.value_or(key, fallback);
  if (name <= HiddenAct::quick_gelu) return "gelu";
  return name == HiddenAct::swish ? "silu" : std::string(to_text(name));
}

void read_size(Design& design, std::string_view hidden, std::string_view blocks,
               std::string_view heads, std::int64_t otherwise) {
  const Config& config = design.config;
  design.hidden = config.count(hidden);
  design.blocks = config.count(blocks);
  SelfAttention& attention = design.attention;
  attention.fused = attention_is_fused(config, design.defaults);
  attention.heads = attention.kv_heads = config.count_or(heads, otherwise);
  if (!config.has("head_dim")) check_heads(attention.heads, design.hidden, config.where(heads));
  attention.head_dim = design.hidden / attention.heads;
}

std::int64_t seq_length_of(const Design& design, std::string_view key, std::int64_t reserved,
                           std::int64_t otherwise) {
  const std::int64_t most = design.config.count_or(key, otherwise) - reserved;
  if (design.seq_length > most || most < 1) {
    throw InputError("--dim seq_length", fmt::format("{} tokens", design.seq_length),
                     fmt::format("accepted: at most {}, the positions of the model", most));
  }
  constexpr std::int64_t usual = 8192;  // what models are mostly trained with, or less
  if (design.seq_length == 0 && most > usual) {
    design.network.warnings.push_back(fmt::format(
        "samples have {} tokens, the model's maximum: --dim seq_length=N for fewer", most));
  }
  return design.seq_length == 0 ? most : design.seq_length;
}

void read_windows(Design& design, const Windows& windows, std::int64_t seq_length) {
  const Config& config = design.config;
  if (windows.has == nullptr) return;
  const std::int64_t window =
      config.is_null("sliding_window") ? 0 : config.value_or("sliding_window", windows.tokens);
  const bool asked = config.value_or("use_sliding_window", !windows.only_if_asked);
  const auto kinds = config.value_or("layer_types", std::vector<std::string>{});
  if (window == 0 || !asked || window >= seq_length) return;
  if (!kinds.empty() && std::ssize(kinds) != design.blocks) {
    throw InputError(config.where("layer_types"), counted(kinds.size(), "block"),
                     fmt::format("accepted: {}, as num_hidden_layers says", design.blocks));
  }
  design.attention.window = window;
  for (std::int64_t i = 0; i < design.blocks; ++i) {
    const bool has = kinds.empty() ? windows.has(config, i)
                                   : kinds[static_cast<std::size_t>(i)] == "sliding_attention";
    if (!has) design.unwindowed.push_back(i);
  }
  if (!design.attention.fused && std::ssize(design.unwindowed) < design.blocks) {
    design.network.warnings.push_back(
        "eager attention computes the scores outside of a sliding window, too");
  }
}

}  // namespace parsim::networks::hugging_face
