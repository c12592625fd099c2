// Kernel bodies in grids: one for each element, and the shapes of reductions.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "hw/kernels.hpp"

namespace parsim::hw {

template <class Body>
__global__ void each_kernel(std::uint32_t count, Body body) {
  for (std::uint64_t i = std::uint64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count;
       i += std::uint64_t{gridDim.x} * blockDim.x) {
    body(static_cast<std::uint32_t>(i));
  }
}

inline constexpr unsigned column_threads = 256;
/// Threads along x and y for columns that lie side by side, `width` of them to a thread.
inline dim3 column_block(std::uint32_t columns, std::uint32_t width) {
  const unsigned across = std::min(32U, columns / width);
  return {across, column_threads / across, 1};
}
inline bool has_wide_access(const void* at) {
  return reinterpret_cast<std::uintptr_t>(at) % 16 == 0;
}

/// Sixteen bytes of every tensor at once; the last elements one by one.
template <class T, int N, class F>
__global__ void packed_kernel(std::uint32_t count, Packed<T, N, F> body) {
  constexpr std::uint32_t width = 16 / sizeof(T);
  struct alignas(16) Vector {
    T at[width];
  };
  const std::uint32_t vectors = count / width;
  const std::uint32_t thread = blockIdx.x * blockDim.x + threadIdx.x;
  const std::uint32_t threads = gridDim.x * blockDim.x;
  for (std::uint32_t v = thread; v < vectors; v += threads) {
    Vector from[N];
    for (int n = 0; n < N; ++n) from[n] = reinterpret_cast<const Vector*>(body.from[n])[v];
    Vector to;
    if (body.adds) to = reinterpret_cast<const Vector*>(body.to)[v];
    for (std::uint32_t k = 0; k < width; ++k) {
      Wide<T> operands[N];
      for (int n = 0; n < N; ++n) operands[n] = static_cast<Wide<T>>(from[n].at[k]);
      Wide<T> value = body.f(v * width + k, operands);
      if (body.adds) value += static_cast<Wide<T>>(to.at[k]);
      to.at[k] = static_cast<T>(value);
    }
    reinterpret_cast<Vector*>(body.to)[v] = to;
  }
  if (thread < count % width) body(vectors * width + thread);
}

/// The same where neighbouring elements are neighbouring columns': what a column's elements share
/// is made once. Threads along x have sixteen bytes of a line each, those along y lines.
template <class T, int N, class F>
__global__ void __launch_bounds__(column_threads)
    packed_columns(std::uint32_t columns, std::uint32_t lines, Packed<T, N, F> body) {
  constexpr std::uint32_t width = 16 / sizeof(T);
  using Vector = Lanes<T, width>;
  const std::uint32_t column = (blockIdx.x * blockDim.x + threadIdx.x) * width;
  if (column >= columns) return;
  decltype(body.f.column(0)) made[width];
  for (std::uint32_t k = 0; k < width; ++k) made[k] = body.f.column(column + k);
#pragma unroll 4
  for (std::uint32_t line = blockIdx.y * blockDim.y + threadIdx.y; line < lines;
       line += gridDim.y * blockDim.y) {
    const std::size_t at = (std::size_t{line} * columns + column) / width;
    Vector from[N];
    for (int n = 0; n < N; ++n) from[n] = reinterpret_cast<const Vector*>(body.from[n])[at];
    Vector to{};
    if (body.adds) to = reinterpret_cast<const Vector*>(body.to)[at];
    for (std::uint32_t k = 0; k < width; ++k) {
      Wide<T> operands[N];
      for (int n = 0; n < N; ++n) operands[n] = static_cast<Wide<T>>(from[n].at[k]);
      Wide<T> value = made[k](operands);
      if (body.adds) value += static_cast<Wide<T>>(to.at[k]);
      to.at[k] = static_cast<T>(value);
    }
    reinterpret_cast<Vector*>(body.to)[at] = to;
  }
}

inline constexpr unsigned reduce_rows = 32, reduce_lanes = 8;

/// Neighbouring threads take neighbouring rows: with the channel innermost, rows are channels and
/// reads are coalesced. Block (x, y) sums one part of the terms of 32 rows.
template <class Body, class Sum>
__global__ void reduce_parts(std::uint32_t rows, std::uint32_t count, std::uint32_t parts,
                             Body body, Sum* sums) {
  __shared__ Sum shared[reduce_lanes][reduce_rows];
  const std::uint32_t row = blockIdx.x * reduce_rows + threadIdx.x;
  const auto begin = static_cast<std::uint32_t>(std::uint64_t{count} * blockIdx.y / parts);
  const auto end = static_cast<std::uint32_t>(std::uint64_t{count} * (blockIdx.y + 1) / parts);
  Sum sum{};
  if (row < rows) {
    const auto begun = begin_row(body, row);
    for (std::uint32_t i = begin + threadIdx.y; i < end; i += reduce_lanes) {
      sum += body.term(begun, i);
    }
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || row >= rows) return;
  for (unsigned lane = 1; lane < reduce_lanes; ++lane) sum += shared[lane][threadIdx.x];
  sums[std::size_t{blockIdx.y} * rows + row] = sum;
}

/// The same where rows lie side by side in memory: a thread has sixteen bytes of them.
template <class Body, class Sum>
__global__ void __launch_bounds__(column_threads)
    reduce_columns(std::uint32_t rows, std::uint32_t count, std::uint32_t parts, Body body,
                   Sum* sums) {
  using T = typename decltype(body.columns)::Scalar;
  constexpr int operands = decltype(body.columns)::operands;
  constexpr std::uint32_t width = 16 / sizeof(T);
  using Vector = Lanes<T, width>;
  __shared__ Sum shared[width][column_threads];
  const std::uint32_t row = (blockIdx.x * blockDim.x + threadIdx.x) * width;
  const auto begin = static_cast<std::uint32_t>(std::uint64_t{count} * blockIdx.y / parts);
  const auto end = static_cast<std::uint32_t>(std::uint64_t{count} * (blockIdx.y + 1) / parts);
  Sum sum[width] = {};
  if (row < rows) {
    decltype(body.begin(0)) begun[width];
    for (std::uint32_t k = 0; k < width; ++k) begun[k] = body.begin(row + k);
#pragma unroll 4
    for (std::uint32_t i = begin + threadIdx.y; i < end; i += blockDim.y) {
      const std::size_t at = std::size_t{i} * body.columns.step + row;
      Vector from[operands];
      for (int n = 0; n < operands; ++n) {
        from[n] = *reinterpret_cast<const Vector*>(body.columns.from[n] + at);
      }
      for (std::uint32_t k = 0; k < width; ++k) {
        Wide<T> values[operands];
        for (int n = 0; n < operands; ++n) values[n] = static_cast<Wide<T>>(from[n].at[k]);
        sum[k] += body.term(begun[k], values);
      }
    }
  }
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  for (std::uint32_t k = 0; k < width; ++k) shared[k][thread] = sum[k];
  __syncthreads();
  // A thread for each of the block's rows: neighbours have neighbouring threads' sums.
  const unsigned lane_rows = blockDim.x * width;
  for (unsigned r = thread; r < lane_rows; r += blockDim.x * blockDim.y) {
    const unsigned k = r / blockDim.x, x = r % blockDim.x;
    const std::uint32_t to = (blockIdx.x * blockDim.x + x) * width + k;
    if (to >= rows) continue;
    Sum all = shared[k][x];
#pragma unroll 8
    for (unsigned lane = 1; lane < blockDim.y; ++lane) all += shared[k][lane * blockDim.x + x];
    sums[std::size_t{blockIdx.y} * rows + to] = all;
  }
}

inline constexpr unsigned line_threads = 128;

/// The sum of all threads' values, in every thread. `shared` has one for each.
template <unsigned threads = line_threads, class Sum>
__device__ Sum block_sum(Sum sum, Sum* shared) {
  __syncthreads();
  shared[threadIdx.x] = sum;
  for (unsigned half = threads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) {
      sum += shared[threadIdx.x + half];
      shared[threadIdx.x] = sum;
    }
  }
  __syncthreads();
  return shared[0];
}

/// Sums of rows whose terms are contiguous in memory: block (x, y) has one part of one row.
template <class Body, class Sum>
__global__ void reduce_lines(std::uint32_t rows, std::uint32_t count, std::uint32_t parts,
                             Body body, Sum* sums) {
  __shared__ Sum shared[line_threads];
  const std::uint32_t row = blockIdx.x;
  const auto begin = static_cast<std::uint32_t>(std::uint64_t{count} * blockIdx.y / parts);
  const auto end = static_cast<std::uint32_t>(std::uint64_t{count} * (blockIdx.y + 1) / parts);
  Sum sum{};
  const auto begun = begin_row(body, row);
  for (std::uint32_t i = begin + threadIdx.x; i < end; i += line_threads) {
    sum += body.term(begun, i);
  }
  const Sum all = block_sum(sum, shared);
  if (threadIdx.x == 0) sums[std::size_t{blockIdx.y} * rows + row] = all;
}

/// A block for each row, whose elements it finds in the cache when it writes: fewer and larger
/// blocks for long rows.
inline constexpr unsigned long_row_threads = 1024;
template <unsigned threads, class Body, class Sum>
__global__ void __launch_bounds__(threads) write_rows(std::uint32_t count, Body body) {
  __shared__ Sum shared[threads];
  const std::uint32_t row = blockIdx.x;
  const auto begun = begin_row(body, row);
  Sum sum{};
  for (std::uint32_t i = threadIdx.x; i < count; i += threads) sum += body.term(begun, i);
  const auto made = body.finish(row, block_sum<threads>(sum, shared));
  for (std::uint32_t i = threadIdx.x; i < count; i += threads) body.write(begun, i, made);
}

/// Neighbouring threads take neighbouring rows; a column of threads shares a row's parts.
inline constexpr unsigned finish_rows = 32, most_finish_lanes = 16;
template <class Body, class Sum>
__global__ void reduce_finish(std::uint32_t rows, std::uint32_t parts, Body body, const Sum* sums) {
  __shared__ Sum shared[most_finish_lanes][finish_rows];
  const std::uint32_t row = blockIdx.x * finish_rows + threadIdx.x;
  Sum sum{};
#pragma unroll 8
  for (std::uint32_t part = threadIdx.y; row < rows && part < parts; part += blockDim.y) {
    sum += sums[std::size_t{part} * rows + row];
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || row >= rows) return;
  for (unsigned lane = 1; lane < blockDim.y; ++lane) sum += shared[lane][threadIdx.x];
  body.finish(row, sum);
}

}  // namespace parsim::hw
