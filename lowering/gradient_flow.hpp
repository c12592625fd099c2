// Which layers take part in the backward pass: facts of the network alone, shared by lowering and
// estimating.
#pragma once

#include <vector>

#include "core/exec_dag.hpp"
#include "core/network.hpp"

namespace parsim::lowering {

/// By layer.
struct GradientFlow {
  std::vector<bool> source;        ///< delivers data: nothing to compute, no gradient
  std::vector<bool> reaches_loss;  ///< the loss depends on it
  std::vector<bool> wants;         ///< has a backward pass: depends on a parameter
  std::vector<bool> passes_on;     ///< a producer of it needs a gradient
  /// Convolutions, dense layers and tables have a kernel for each gradient; the others do it all in
  /// one.
  std::vector<bool> two_kernels;
};
[[nodiscard]] GradientFlow gradient_flow(const Network& network);

/// The kernels that a micro-batch runs of a layer, in the order of lower(): forward, and of
/// backward only what leads to a parameter. None for an Input.
[[nodiscard]] std::vector<Pass> passes_of(const Network& network, const GradientFlow& flow,
                                          LayerId layer);

}  // namespace parsim::lowering
