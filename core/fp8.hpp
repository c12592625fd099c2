// Matrix products in FP8, all else in bf16: which products, what is cast for them, what is kept.
// Time (sim/) and memory (lowering/) both follow from here.
//
// Transformer Engine and Megatron-LM (`--fp8-format`, `--fp8-recipe`), torchao's float8 and
// DeepSeek-V3 agree on the products: forward, data gradient and weight gradient of linear layers,
// also of experts; not embeddings, output head, routers, norms and the products of attention
// (DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", section 3.3.1). Layers whose widths are no
// multiples of 16 stay in bf16 (torchao: module_filter_fn; Transformer Engine refuses them).
//
//     recipe          scales                                   Megatron-LM's --fp8-recipe
//     fp8             of each tensor, from its own largest     tensorwise
//                     element
//     fp8-delayed     of each tensor, from earlier steps       delayed
//     fp8-blockwise   of 1 x 128 elements of activations and   blockwise
//                     gradients, 128 x 128 of weights
//
// Operands are cast from bf16: inputs forward, gradients of outputs backward, weights once a step
// (Transformer Engine: is_first_microbatch). Weights, their gradients, optimizer states and
// messages are as without FP8. Values do not change: a plan means the same in every precision.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/cluster.hpp"
#include "core/network.hpp"

namespace parsim {

/// Widths of operands in FP8 are multiples of it.
inline constexpr std::int64_t fp8_multiple = 16;

/// Whether the three products of a layer run in FP8. In a network whose step does.
[[nodiscard]] bool multiplies_in_fp8(const Network& network, LayerId layer);
/// Whether a layer that multiplies in FP8 casts its input: the first of those that read it.
/// Trainers fuse queries, keys and values, and both halves of a gated layer, into one product.
[[nodiscard]] bool casts_input(const Network& network, LayerId layer);

/// What the cast of an operand does, per element.
struct Fp8Cast {
  /// Copies that are written: a second, transposed one if a device multiplies row by row only, as
  /// Hopper and Ada do (Transformer Engine: nvte_is_non_tn_fp8_gemm_supported), or if rows and
  /// columns have scales of their own.
  std::int64_t copies = 2;
  double bytes = 0;     ///< read and written
  double launches = 1;  ///< kernels: one for the largest element where it is needed first
};
/// recipe   one that multiplies in FP8
[[nodiscard]] Fp8Cast fp8_cast(Precision recipe, const DeviceModel& model);

/// Which weights are multiplied in FP8.
class Fp8Weights {
 public:
  /// None, unless `precision` multiplies in FP8.
  Fp8Weights(const Network& network, Precision precision);
  [[nodiscard]] bool contains(ParameterId parameter) const {
    return !cast_.empty() && cast_[parameter.index()];
  }
  /// Elements of these parts of parameters that are.
  [[nodiscard]] std::int64_t elements(std::span<const std::pair<ParameterId, Region>> parts) const;

 private:
  std::vector<bool> cast_;  ///< by parameter; empty: none
};

}  // namespace parsim
