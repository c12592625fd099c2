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
/// causal: a token attends to itself and those before it. Cut along sample, token (of queries), and
/// channel: a part needs the heads that its channels belong to.
struct Attention {
  std::int64_t heads = 1, key_heads = 1;
  bool causal = false;
  friend bool operator==(const Attention&, const Attention&) = default;
};

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
