#include "sim/host_launches.hpp"

namespace parsim::sim {

namespace {

double besides(const Kernel& kernel, std::int64_t element_bytes) {
  const bool cudnn = element_bytes > 2;
  switch (kernel.op) {
    case Operator::batch_norm:
      return kernel.backwards ? (cudnn ? 1 : 2) : (cudnn ? 2 : 4);
    case Operator::layer_norm:
    case Operator::max_pool:
      return kernel.backwards ? 1 : 0;
    case Operator::sum_rows:
      return 1;
    case Operator::other:
      break;
    default:
      return 0;
  }
  if (kernel.attends) return kernel.backwards ? 2 : 0;
  switch (kernel.kind) {
    case KernelClass::backward_data:
    case KernelClass::backward_weights:
      return 1;
    case KernelClass::gemm:
      return kernel.shape == KernelShape::nt ? 1 : 0;
    default:
      return 0;
  }
}

}  // namespace

double host_launches(const Kernel& kernel, std::int64_t element_bytes) {
  return kernel.launches > 0 ? kernel.launches + besides(kernel, element_bytes) : 0;
}

}  // namespace parsim::sim
