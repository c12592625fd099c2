// What nvcc adds to C++, for the emulator: kernels are functions, called once per thread.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(threads)
#define __shared__ static  // blocks run one after another

extern dim3 gridDim, blockDim, blockIdx, threadIdx;
void __syncthreads();
void __nanosleep(unsigned nanoseconds);
/// In a kernel: the emulated GPU's clock.
unsigned long long emulated_globaltimer();
unsigned emulated_multiprocessor();
cudaError_t emulated_launch(const cudaLaunchConfig_t& config, const void* kernel,
                            std::function<void()> thread);

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  return emulated_launch(*config, reinterpret_cast<const void*>(kernel),
                         [=] { kernel(Parameters(arguments)...); });
}
