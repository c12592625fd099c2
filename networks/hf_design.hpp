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
void read_size(Design& design, std::string_view hidden, std::string_view blocks,
               std::string_view heads);
/// Tokens of a sample: --dim seq_length, or all the positions that the model has.
[[nodiscard]] std::int64_t seq_length_of(const Design& design, std::string_view key,
                                         std::int64_t reserved = 0);

/// LLaMA and what is built like it: hf_llama.cpp.
void llama(Design& design);
void mistral(Design& design);
void qwen2(Design& design);
void qwen3(Design& design);
void gemma(Design& design);
void mixtral(Design& design);
void qwen2_moe(Design& design);
void qwen3_moe(Design& design);
void deepseek_v2(Design& design);
void deepseek_v3(Design& design);
void gpt_oss(Design& design);

}  // namespace parsim::networks::hugging_face
