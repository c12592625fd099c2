#include "hw/cuda/measure.cuh"

namespace parsim::hw {

template struct CudaRuns<__nv_bfloat16>;

}  // namespace parsim::hw
