// Casts to FP8 with a scale for each block (core/fp8.hpp, fp8-blockwise), for cuBLASLt's products
// that read such scales: as DeepSeek-AI 2024, "DeepSeek-V3 Technical Report", section 3.3, all in
// E4M3, each block from its own largest element.
//
// cuBLASLt's documentation ("Scaling factors layouts") has a matrix of n lines of k summed elements
// with L = ⌈k/128⌉ blocks a line:
//
//     by line   of 1 × 128 elements     scales[line + n · block]
//     square    of 128 × 128 elements   scales[block + L₄ · ⌊line/128⌋],   L₄ = 4 ⌈L/4⌉
//
// At most one operand of a product has squares.
#pragma once

#include "hw/cuda/fp8.cuh"

namespace parsim::hw {

/// As a CastTask. The lines of a copy are the matrix's rows, those of a transposed one its columns;
/// matrices' scales lie behind each other, too.
template <class T>
struct BlockCastTask {
  const T* from = nullptr;
  std::uint32_t rows = 0, columns = 0;
  std::uint32_t padded_rows = 0;       ///< of a transposed copy; zeros from `rows` on
  std::uint8_t* copy = nullptr;        ///< null: not wanted
  std::uint8_t* transposed = nullptr;  ///< null: not wanted
  float* scales = nullptr;             ///< of the one or the other
  bool squares = false;
};

inline constexpr unsigned scale_block = 128;
/// cuBLASLt's results have a multiple of so many rows and columns.
inline constexpr std::int64_t block_rows = 4;

/// Scales of a matrix of so many lines.
[[nodiscard]] constexpr std::uint64_t block_scales(std::uint64_t lines, std::uint64_t summed,
                                                   bool squares) {
  const std::uint64_t blocks = (summed + scale_block - 1) / scale_block;
  return squares ? (blocks + 3) / 4 * 4 * ((lines + scale_block - 1) / scale_block)
                 : blocks * lines;
}

/// A block for each tile of 128 × 128; blockIdx.x counts rows of tiles, blockIdx.z matrices.
template <class T>
__global__ void __launch_bounds__(cast_threads) cast_by_blocks(BlockCastTask<T> task) {
  constexpr unsigned side = scale_block, vectors = side / 8;
  // Rows of words, padded by one word against bank conflicts.
  __shared__ T tile[side * (side + 2)];
  __shared__ float largest[cast_threads], shared[cast_threads];
  const auto at = [&](unsigned row, unsigned column) -> T& {
    return tile[row * (side + 2) + column];
  };
  const std::uint32_t first_row = blockIdx.x * side;
  const std::uint32_t first_column = blockIdx.y * side;
  const bool turns = task.transposed != nullptr;
  const std::uint64_t from = std::uint64_t{blockIdx.z} * task.rows * task.columns;
  for (unsigned i = threadIdx.x; i < side * vectors; i += cast_threads) {
    const unsigned line = i / vectors, begin = i % vectors * 8;
    EightOf<T> read{};
    if (first_row + line < task.rows && first_column + begin < task.columns) {
      read = *reinterpret_cast<const EightOf<T>*>(
          task.from + from + std::uint64_t{first_row + line} * task.columns + first_column + begin);
    }
    for (unsigned k = 0; k < 8; ++k) at(line, begin + k) = read.at[k];
  }
  __syncthreads();
  // Two threads look for a line's largest element, each in one half of it.
  const unsigned own = threadIdx.x % side, begin_of_own = threadIdx.x / side * (side / 2);
  float most = 0;
  for (unsigned k = begin_of_own; k < begin_of_own + side / 2; ++k) {
    most = larger(most, size_of(static_cast<float>(turns ? at(k, own) : at(own, k))));
  }
  if (task.squares) most = block_largest(most, shared);
  largest[threadIdx.x] = most;
  __syncthreads();
  const auto scale_of = [&](unsigned line) {
    return fp8_scale(largest_e4m3, larger(largest[line], largest[line + side]));
  };
  // Where the tile begins among lines and summed elements.
  const std::uint32_t lines = turns ? task.columns : task.rows;
  const std::uint32_t summed = turns ? task.padded_rows : task.columns;
  const std::uint32_t first_line = turns ? first_column : first_row;
  const std::uint32_t first_summed = turns ? first_row : first_column;
  float* const scales = task.scales + blockIdx.z * block_scales(lines, summed, task.squares);
  const std::uint32_t blocks = (summed - 1) / side + 1;
  const std::uint32_t block = first_summed / side;
  if (!task.squares) {
    if (threadIdx.x < side && first_line + threadIdx.x < lines) {
      scales[first_line + threadIdx.x + std::uint64_t{lines} * block] = 1 / scale_of(threadIdx.x);
    }
  } else if (threadIdx.x == 0) {
    float* const line = scales + std::uint64_t{(blocks + 3) / 4 * 4} * (first_line / side);
    line[block] = 1 / scale_of(0);
    for (std::uint32_t rest = block + 1; block + 1 == blocks && rest % 4 != 0; ++rest) {
      line[rest] = 0;
    }
  }
  std::uint8_t* const to =
      (turns ? task.transposed : task.copy) + std::uint64_t{blockIdx.z} * lines * summed;
  for (unsigned i = threadIdx.x; i < side * vectors; i += cast_threads) {
    const unsigned line = i / vectors, begin = i % vectors * 8;
    if (first_line + line >= lines || first_summed + begin >= summed) continue;
    const float scale = scale_of(line);
    EightBytes made{};
    for (unsigned k = 0; k < 8; ++k) {
      const T value = turns ? at(begin + k, line) : at(line, begin + k);
      made.at[k] =
          __nv_cvt_float_to_fp8(static_cast<float>(value) * scale, __NV_SATFINITE, __NV_E4M3);
    }
    *reinterpret_cast<EightBytes*>(to + std::uint64_t{first_line + line} * summed + first_summed +
                                   begin) = made;
  }
}

}  // namespace parsim::hw
