#include "hw/cuda/measure.cuh"

namespace parsim::hw {

CudaRuns bf16_runs() {
  return {time_alone<__nv_bfloat16>, time_together<__nv_bfloat16>, time_launch<__nv_bfloat16>,
          time_steps<__nv_bfloat16>, check_numbers<__nv_bfloat16>};
}

}  // namespace parsim::hw
