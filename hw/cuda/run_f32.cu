#include "hw/cuda/measure.cuh"

namespace parsim::hw {

template struct CudaRuns<float>;

}  // namespace parsim::hw
