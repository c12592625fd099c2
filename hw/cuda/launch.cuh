// How kernels are launched, the GPU's clock and where on it one is: the only places that are not
// C++ for any compiler, so that tests run the rest of this folder on the host (tests/hw/emulated).
#pragma once

#include <cuda_runtime.h>

#include "hw/cuda/check.hpp"

namespace parsim::hw {

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, dim3 block, cudaStream_t stream,
            const Arguments&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.stream = stream;
  cuda_check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...),
             "cudaLaunchKernelEx");
}

/// The GPU's clock of nanoseconds, the same on all its multiprocessors.
__device__ inline unsigned long long global_nanoseconds() {
  unsigned long long now = 0;
#ifdef __CUDA_ARCH__
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
#elif !defined(__CUDACC__)
  now = emulated_globaltimer();
#endif
  return now;
}

__device__ inline unsigned this_multiprocessor() {
  unsigned number = 0;
#ifdef __CUDA_ARCH__
  asm volatile("mov.u32 %0, %smid;" : "=r"(number));
#elif !defined(__CUDACC__)
  number = emulated_multiprocessor();
#endif
  return number;
}

}  // namespace parsim::hw
