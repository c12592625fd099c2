// How kernels are launched, the GPU's clock and where on it one is: the only places that are not
// C++ for any compiler, so that tests run the rest of this folder on the host (tests/hw/emulated).
#pragma once

#include <cuda_runtime.h>

#include <bit>
#include <cstdint>

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

/// A number's bits, and the number of bits.
__device__ inline std::uint32_t bits_of(float number) {
#ifdef __CUDA_ARCH__
  return __float_as_uint(number);
#else
  return std::bit_cast<std::uint32_t>(number);
#endif
}
__device__ inline float number_of(std::uint32_t bits) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(bits);
#else
  return std::bit_cast<float>(bits);
#endif
}
/// Writes a value where less stands; several threads may.
__device__ inline void raise_to(std::uint32_t& where, std::uint32_t value) {
#ifdef __CUDA_ARCH__
  atomicMax(&where, value);
#else
  where = where < value ? value : where;
#endif
}

}  // namespace parsim::hw
