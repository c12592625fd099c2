// What the readers of all types of models share: sizes, activations, lengths of samples. Private to
// networks/.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "networks/hf_config.hpp"
#include "networks/networks.hpp"
#include "networks/transformer_blocks.hpp"

namespace parsim::networks::hugging_face {

/// What every model has.
struct Design : zoo::Blocks {
  Design(const Config& from, Network& to, std::int64_t length, const NetworkDefaults& otherwise)
      : config(from), network(to), seq_length(length), defaults(otherwise) {}

  const Config& config;
  Network& network;
  std::int64_t seq_length;  ///< given by --dim seq_length=N; 0: the config's
  NetworkDefaults defaults;
};

/// The activation under `key` as layers have it.
[[nodiscard]] std::string activation_of(const Config& config, std::string_view key,
                                        HiddenAct fallback);
/// Hidden size, blocks and heads under the keys of the model's type.
/// `otherwise` heads, if positive, where the config does not say.
void read_size(Design& design, std::string_view hidden, std::string_view blocks,
               std::string_view heads, std::int64_t otherwise = 0);
/// Tokens of a sample: --dim seq_length, or all the positions that the model has; `otherwise`, if
/// positive, where the config does not say.
[[nodiscard]] std::int64_t seq_length_of(const Design& design, std::string_view key,
                                         std::int64_t reserved = 0, std::int64_t otherwise = 0);

/// Which blocks of a type have a sliding window where the config does not say (layer_types).
struct Windows {
  bool (*has)(const Config& config, std::int64_t block) = nullptr;  ///< none: the type has none
  std::int64_t tokens = 0;     ///< of a window, if the config does not say; 0: none
  bool only_if_asked = false;  ///< with "use_sliding_window": true
};
/// Sets the window of attention, and which blocks have none. Windows as long as samples are none.
void read_windows(Design& design, const Windows& windows, std::int64_t seq_length);

/// GPT-2 and what is built like it: hf_gpt.cpp.
void gpt2(Design& design);
void gpt_neox(Design& design);
void opt(Design& design);
void bloom(Design& design);
void falcon(Design& design);
void phi(Design& design);
void starcoder2(Design& design);

/// LLaMA and what is built like it: hf_llama.cpp.
void llama(Design& design);
void mistral(Design& design);
void smollm3(Design& design);
void phi3(Design& design);
void olmo2(Design& design);
void qwen2(Design& design);
void qwen3(Design& design);
void gemma(Design& design);
void gemma2(Design& design);
void gemma3(Design& design);
void mixtral(Design& design);
void olmoe(Design& design);
void qwen2_moe(Design& design);
void qwen3_moe(Design& design);
void deepseek_v2(Design& design);
void deepseek_v3(Design& design);
void gpt_oss(Design& design);

}  // namespace parsim::networks::hugging_face
