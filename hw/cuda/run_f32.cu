#include "hw/cuda/measure.cuh"

namespace parsim::hw {

CudaRuns f32_runs() {
  return {time_alone<float>, time_together<float>, time_launch<float>, time_steps<float>,
          check_numbers<float>};
}

}  // namespace parsim::hw
