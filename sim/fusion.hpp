// Which element-wise layers a trainer computes in one kernel.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/framework.hpp"
#include "core/spelling.hpp"

namespace parsim::sim {

///   none      a kernel for each layer, and the optimizer in one
///   compiled  torch.compile: chains of element-wise layers and norms in one kernel, as Inductor
///             generates them
///   megatron  the kernels of Megatron-LM, apex and Transformer Engine: SwiGLU, dropout with the
///             residual sum, norms, rotary embedding, scaled masked softmax
/// With the latter two the optimizer runs in multi-tensor kernels and writes the 16-bit copy of the
/// weights (sim/optimizer_step.hpp).
enum class Fusion : std::uint8_t { none, compiled, megatron };
constexpr std::array<std::string_view, 3> spellings(Fusion) {
  return {"none", "compiled", "megatron"};
}

/// Who launches these kernels.
constexpr Framework framework_of(Fusion fusion) {
  return fusion == Fusion::megatron ? Framework::megatron : Framework::pytorch;
}

}  // namespace parsim::sim
