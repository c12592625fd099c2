#include "sim/optimizer_step.hpp"

#include <algorithm>

namespace parsim::sim {

OptimizerKernels optimizer_kernels(const OptimizerStep& step, Fusion fusion) {
  constexpr std::int64_t elements_of_a_launch = 320 * 65'536, copy = 4 + 2;
  const Bytes touched = update_traffic(step.elements, step.optimizer, step.reduce);
  if (fusion == Fusion::none) return {touched, 1};
  const bool copies = element_bytes(step.precision) < element_bytes(Precision::fp32);
  const std::int64_t launches =
      std::max<std::int64_t>(1, (step.elements + elements_of_a_launch - 1) / elements_of_a_launch);
  return {touched + Bytes{copies ? step.elements * copy : 0}, launches * (copies ? 2 : 1)};
}

}  // namespace parsim::sim
