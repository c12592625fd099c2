#include "hw/cuda/measure.cuh"

namespace parsim::hw {

template struct CudaRuns<__half>;

}  // namespace parsim::hw
