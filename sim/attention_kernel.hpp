// Which fused attention a trainer calls.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/spelling.hpp"

namespace parsim::sim {

///   automatic  what PyTorch takes on the card: FlashAttention-2 from Ampere on, else xformers'
///   flash1     FlashAttention 1 (2022)
///   triton     its first implementation in Triton (flash_attn_triton.py), which llm-foundry calls
///              `attn_impl: triton`: by its author "slightly slower" than FlashAttention 1, forward
///              and backward together, and priced as that
///   xformers   xformers' memory-efficient kernel
/// Cards before Ampere run xformers' kernel with any of these.
enum class AttentionKernel : std::uint8_t { automatic, flash1, triton, xformers };
constexpr std::array<std::string_view, 4> spellings(AttentionKernel) {
  return {"auto", "flash1", "triton", "xformers"};
}

}  // namespace parsim::sim
