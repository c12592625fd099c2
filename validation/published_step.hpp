// One forward and backward pass of a published row on one device.
#pragma once

#include "validation/validation.hpp"

namespace parsim::validation {

/// Kernel times by the cost model: forward and backward, no update.
struct SingleStep {
  double squares =
      0;  ///< seconds in 3x3 convolutions of stride 1, which Winograd's method speeds up
  double others = 0;  ///< seconds in other kernels
  double flops = 0;   ///< forward
};
/// Throws InputError for a row that cannot be expressed.
[[nodiscard]] SingleStep single_step(const Claim& claim);

}  // namespace parsim::validation
