#include "sim/optimizer_step.hpp"

#include <algorithm>

namespace parsim::sim {

OptimizerKernels optimizer_kernels(const OptimizerStep& step, Fusion fusion) {
  constexpr std::int64_t elements_of_a_launch = 320 * 65'536, copy = 4 + 2;
  const Bytes touched = update_traffic(step.elements, step.optimizer, step.reduce);
  if (fusion == Fusion::none) {
    const bool sgd = step.optimizer == Optimizer::sgd || step.optimizer == Optimizer::momentum;
    return {sgd ? Operator::sgd : Operator::other, touched, 1};
  }
  const bool copies = element_bytes(step.precision) < element_bytes(Precision::fp32);
  const std::int64_t launches =
      std::max<std::int64_t>(1, (step.elements + elements_of_a_launch - 1) / elements_of_a_launch);
  // Zeroing, scaling and the norm run over the whole buffer at once.
  constexpr std::int64_t passes = 1 + 2 + 1;
  const Bytes sums{fusion == Fusion::megatron ? step.elements * passes * element_bytes(step.reduce)
                                              : 0};
  return {Operator::other, touched + sums + Bytes{copies ? step.elements * copy : 0},
          launches * (copies ? 2 : 1)};
}

}  // namespace parsim::sim
