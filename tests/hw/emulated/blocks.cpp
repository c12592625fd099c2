#include "tests/hw/emulated/blocks.hpp"

#include <cublasLt.h>
#include <cuda_bf16.h>

#include <memory>

#include "hw/cuda/check.hpp"
#include "hw/cuda/fp8_blocks.cuh"
#include "hw/cuda/matrix.hpp"

namespace parsim::testing {

namespace {

/// Memory of the GPU, of so many elements.
template <class T>
class OnGpu {
 public:
  explicit OnGpu(std::size_t count) {
    hw::cuda_check(cudaMalloc(&data_, count * sizeof(T)), "cudaMalloc");
  }
  ~OnGpu() { static_cast<void>(cudaFree(data_)); }
  OnGpu(const OnGpu&) = delete;
  OnGpu& operator=(const OnGpu&) = delete;
  [[nodiscard]] T* get() const { return static_cast<T*>(data_); }

 private:
  void* data_ = nullptr;
};

struct CastOfTest {
  CastOfTest(const std::vector<float>& numbers, std::int64_t columns, bool squares, bool turns)
      : from(numbers.size()),
        rows(static_cast<std::uint32_t>(static_cast<std::int64_t>(numbers.size()) / columns)),
        padded(static_cast<std::uint32_t>(hw::padded_rows(rows))),
        lines(turns ? static_cast<std::uint32_t>(columns) : rows),
        summed(turns ? padded : static_cast<std::uint32_t>(columns)),
        to(std::size_t{lines} * summed),
        scales(hw::block_scales(lines, summed, squares)) {
    for (std::size_t i = 0; i < numbers.size(); ++i) from.get()[i] = __nv_bfloat16(numbers[i]);
    hw::BlockCastTask<__nv_bfloat16> task;
    task.from = from.get();
    task.rows = rows;
    task.columns = static_cast<std::uint32_t>(columns);
    task.padded_rows = padded;
    (turns ? task.transposed : task.copy) = to.get();
    task.scales = scales.get();
    task.squares = squares;
    hw::launch(hw::cast_by_blocks<__nv_bfloat16>,
               dim3((padded - 1) / hw::scale_block + 1, (task.columns - 1) / hw::scale_block + 1),
               hw::cast_threads, nullptr, task);
  }
  OnGpu<__nv_bfloat16> from;
  std::uint32_t rows, padded, lines, summed;
  OnGpu<std::uint8_t> to;
  OnGpu<float> scales;
};

}  // namespace

std::vector<float> by_blocks(const BlockProduct& of) {
  const bool forward = of.product == hw::Product::forward;
  const bool weights = of.product == hw::Product::weights;
  const CastOfTest a = weights ? CastOfTest(of.x, of.inner, false, true)
                               : CastOfTest(of.w, of.inner, true, !forward);
  const CastOfTest b = forward ? CastOfTest(of.x, of.inner, false, false)
                               : CastOfTest(of.y, of.columns, false, weights);
  const std::int64_t count = forward   ? of.rows * of.columns
                             : weights ? of.columns * of.inner
                                       : of.rows * of.inner;
  const OnGpu<__nv_bfloat16> result(static_cast<std::size_t>(count));
  cublasLtHandle_t handle = nullptr;
  hw::cublas_check(cublasLtCreate(&handle), "cublasLtCreate");
  const hw::MatrixShape shape{of.product, Precision::bf16, of.rows, of.columns, of.inner};
  const auto plan =
      hw::MatrixPlan::make_in_fp8(handle, shape, {a.scales.get(), b.scales.get(), true}, 0);
  std::vector<float> found;
  if (plan) {
    const OnGpu<char> workspace(static_cast<std::size_t>(plan->workspace_bytes()));
    plan->multiply(handle, a.to.get(), b.to.get(), result.get(), false, workspace.get(), nullptr);
    hw::cuda_check(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");
    for (std::int64_t i = 0; i < count; ++i) found.push_back(static_cast<float>(result.get()[i]));
  }
  static_cast<void>(cublasLtDestroy(handle));
  return found;
}

}  // namespace parsim::testing
