// The kinds of layers that are made for attention: attention in one kernel, and the keys of heads
// that share channels.
#pragma once

#include <cstdint>

namespace parsim {

/// Fused attention, which computes its scores tile by tile and stores none (Dao et al. 2022,
/// "FlashAttention"):
///
///     in       queries  tokens × (heads · width)
///              keys     tokens' × (key_heads · width); heads / key_heads queries share them
///              values   tokens' × (key_heads · width'); width' may differ from width
///     out      softmax(queries · keysᵀ / √width) · values, by head: tokens × (heads · width')
///
/// causal: a token attends to itself and those before it, with a `window` to so many tokens at
/// most, itself among them (0: to all; Beltagy et al. 2020, "Longformer", section 3.1). Cut along
/// sample, token (of queries), and channel: a part needs the heads that its channels belong to. A
/// part may be of some keys only (Part::contraction), one step of ring attention.
struct Attention {
  std::int64_t heads = 1, key_heads = 1;
  bool causal = false;
  std::int64_t window = 0;
  friend bool operator==(const Attention&, const Attention&) = default;
};

/// Position in the sequence of the token with index `index`, if `tokens` tokens are in zigzag order
/// over `ways` devices: the sequence is cut into 2 · ways chunks, and device i has chunks i and 2 ·
/// ways - 1 - i, one after the other, so that under a causal mask all devices have as much work
/// (Llama Team 2024, "The Llama 3 Herd of Models", section 3.3.2; Megatron-LM's
/// get_batch_on_this_cp_rank). `tokens` is a multiple of 2 · ways.
[[nodiscard]] constexpr std::int64_t zigzag_position(std::int64_t index, std::int64_t tokens,
                                                     std::int32_t ways) {
  if (ways == 0) return index;
  const std::int64_t each = tokens / (2 * std::int64_t{ways}), slot = index / each;
  const std::int64_t chunk = slot % 2 == 0 ? slot / 2 : 2 * std::int64_t{ways} - 1 - slot / 2;
  return chunk * each + index % each;
}

/// The channels of every head, then channels that all heads share, as multi-head latent attention
/// makes its keys (DeepSeek-AI 2024, "DeepSeek-V2", equation 17):
///
///     in       tokens × (heads · width); shared  tokens × width'
///     out      tokens × (heads · (width + width'))
///
/// Cut along sample, token and channel.
struct HeadConcat {
  std::int64_t heads = 1;
  friend bool operator==(const HeadConcat&, const HeadConcat&) = default;
};

}  // namespace parsim
