// What a host launches for a kernel besides the kernel.
#pragma once

#include "sim/kernels.hpp"

namespace parsim::sim {

/// Kernels, fills and memory sets. Libraries clear what a kernel then adds to, or add its parts up
/// afterwards: weight gradients and sums of rows, input gradients of convolutions; fused attention
/// goes backward in three kernels. Operators of PyTorch have kernels for what moves few bytes: a
/// batch normalisation clears a counter, takes its statistics into the running ones and counts the
/// step (in FP32 cuDNN does most of that in one).
///
/// Source: what PyTorch 2.11 launched in steps of 20 networks (validation/records,
/// pytorch_kernels.txt), about half of it such.
[[nodiscard]] double host_launches(const Kernel& kernel, std::int64_t element_bytes);

}  // namespace parsim::sim
