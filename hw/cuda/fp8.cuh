// Operands of products in FP8 (core/fp8.hpp): casts of matrices from 16 bits, scaled by tensor.
//
// As Transformer Engine scales (recipe.py, Float8CurrentScaling and DelayedScaling with a history
// of one step): an element is stored as the FP8 number nearest to element · limit / largest, what
// is beyond the limit as the limit. `largest` is of the tensor itself (fp8) or of what this cast
// saw in the step before (fp8-delayed). cuBLASLt multiplies its result by largest / limit of both
// operands.
#pragma once

#include <cuda_fp8.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "hw/cuda/launch.cuh"

namespace parsim::hw {

/// What a cast leaves in the device's memory for cuBLASLt and for the next step.
struct alignas(16) CastState {
  float unit = 1;          ///< an element is its FP8 number times this
  float largest = 0;       ///< of the step before; 0: unknown
  std::uint32_t seen = 0;  ///< largest of this step, as bits, which are in the order of numbers
  std::uint32_t unused = 0;
};

/// Of matrices of one size that lie behind each other and have one scale, as experts' have. Widths
/// are multiples of 16; a matrix lies row by row without gaps, at a multiple of 16 bytes.
template <class T>
struct CastTask {
  const T* from = nullptr;
  std::uint32_t rows = 0, columns = 0;
  std::uint32_t padded_rows = 0;       ///< of a transposed copy; zeros from `rows` on
  std::uint8_t* copy = nullptr;        ///< row by row; null: not wanted
  std::uint8_t* transposed = nullptr;  ///< each column by column; null: not wanted
  const float* maxima = nullptr;       ///< whose largest the scale follows from
  std::uint32_t maxima_count = 0;
  CastState* state = nullptr;
  bool notes = false;  ///< leaves its largest element in `state`
};

inline constexpr unsigned cast_threads = 256, cast_tile = 64, most_maxima = cast_threads;
inline constexpr float largest_e4m3 = 448, largest_e5m2 = 57344, largest_float = 3.4e38F;

__device__ inline float larger(float a, float b) { return a > b ? a : b; }
__device__ inline float size_of(float value) { return value < 0 ? -value : value; }

/// What elements are multiplied by, of which none is larger than that.
__device__ inline float fp8_scale(float limit, float largest) {
  const bool usable = largest > 0 && largest <= largest_float;
  const float scale = usable ? limit / largest : 1;
  return scale <= largest_float ? scale : largest_float;
}

/// The largest of all threads' numbers, in every thread. `shared` has `cast_threads` numbers, of
/// this call alone.
__device__ inline float block_largest(float value, float* shared) {
  constexpr unsigned sums = 16;
  shared[threadIdx.x] = value;
  __syncthreads();
  if (threadIdx.x < sums) {
    for (unsigned k = threadIdx.x; k < cast_threads; k += sums) value = larger(value, shared[k]);
    shared[threadIdx.x] = value;  // read by this thread alone before
  }
  __syncthreads();
  for (unsigned k = 0; k < sums; ++k) value = larger(value, shared[k]);
  return value;
}

template <class T>
struct alignas(16) EightOf {
  T at[8];
};
struct alignas(8) EightBytes {
  std::uint8_t at[8];
};

/// Every block's largest element. So many groups of eight elements.
template <class T>
__global__ void largest_elements(std::uint64_t eights, const T* from, float* maxima) {
  __shared__ float shared[cast_threads];
  const auto* all = reinterpret_cast<const EightOf<T>*>(from);
  const std::uint64_t step = std::uint64_t{gridDim.x} * cast_threads;
  constexpr int unrolled = 4;  // loads in flight
  float most = 0;
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * cast_threads + threadIdx.x; i < eights;
       i += unrolled * step) {
    EightOf<T> some[unrolled];
    for (int u = 0; u < unrolled; ++u) some[u] = all[i + u * step < eights ? i + u * step : i];
    for (int u = 0; u < unrolled; ++u) {
      for (int k = 0; k < 8; ++k) most = larger(most, size_of(static_cast<float>(some[u].at[k])));
    }
  }
  most = block_largest(most, shared);
  if (threadIdx.x == 0) maxima[blockIdx.x] = most;
}

/// Delayed scaling: what a step has seen is the next one's scale. What saw nothing keeps its own.
__global__ inline void begin_casts(std::uint32_t count, CastState* states) {
  const std::uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= count || states[i].seen == 0) return;
  states[i].largest = number_of(states[i].seen);
  states[i].seen = 0;
}

/// A block for each tile of 64 × 64; blockIdx.x counts rows of tiles, blockIdx.z matrices.
///
/// gradient   in E5M2, as gradients of outputs; else in E4M3
template <class T, bool gradient>
__global__ void __launch_bounds__(cast_threads) cast_to_fp8(CastTask<T> task) {
  // Columns of words, padded by one word against bank conflicts.
  constexpr unsigned words = cast_tile / 4 + 1;
  __shared__ std::uint32_t tile[cast_tile * words];
  __shared__ float before[cast_threads], seen[cast_threads];
  float largest = task.maxima[0];
  if (task.maxima_count > 1) {
    if (threadIdx.x < task.maxima_count) largest = task.maxima[threadIdx.x];
    largest = block_largest(largest, before);
  }
  constexpr float limit = gradient ? largest_e5m2 : largest_e4m3;
  const float scale = fp8_scale(limit, largest);
  const std::uint64_t before_this = std::uint64_t{blockIdx.z} * task.rows * task.columns;
  const std::uint32_t first_row = blockIdx.x * cast_tile;
  const std::uint32_t first_column = blockIdx.y * cast_tile;
  const unsigned line = threadIdx.x / 8;
  const unsigned eighth = threadIdx.x % 8;
  constexpr unsigned lines = cast_threads / 8;
  auto* bytes = reinterpret_cast<std::uint8_t*>(tile);
  float most = 0;
  for (unsigned begin = 0; begin < cast_tile; begin += lines) {
    const std::uint32_t row = first_row + begin + line;
    const std::uint32_t column = first_column + 8 * eighth;
    EightBytes made{};
    if (row < task.rows && column < task.columns) {
      const std::uint64_t at = before_this + std::uint64_t{row} * task.columns + column;
      const EightOf<T> read = *reinterpret_cast<const EightOf<T>*>(task.from + at);
      for (int k = 0; k < 8; ++k) {
        const auto value = static_cast<float>(read.at[k]);
        most = larger(most, size_of(value));
        made.at[k] =
            __nv_cvt_float_to_fp8(value * scale, __NV_SATFINITE, gradient ? __NV_E5M2 : __NV_E4M3);
      }
      if (task.copy != nullptr) *reinterpret_cast<EightBytes*>(task.copy + at) = made;
    }
    for (unsigned k = 0; k < 8; ++k) {
      bytes[(8 * eighth + k) * 4 * words + begin + line] = made.at[k];
    }
  }
  __syncthreads();
  for (unsigned begin = 0; task.transposed != nullptr && begin < cast_tile; begin += lines) {
    const std::uint32_t column = first_column + begin + line;
    const std::uint32_t row = first_row + 8 * eighth;
    if (column >= task.columns || row >= task.padded_rows) continue;
    struct alignas(8) Words {
      std::uint32_t at[2];
    };
    const std::uint32_t* from = tile + (begin + line) * words + 2 * eighth;
    const std::uint64_t line_of_all = std::uint64_t{blockIdx.z} * task.columns + column;
    *reinterpret_cast<Words*>(task.transposed + line_of_all * task.padded_rows +
                              row) = {{from[0], from[1]}};
  }
  const bool first = blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0;
  if (first && threadIdx.x == 0) task.state->unit = 1 / scale;
  if (!task.notes) return;
  most = block_largest(most, seen);
  if (threadIdx.x == 0) raise_to(task.state->seen, bits_of(most));
}

}  // namespace parsim::hw
