// The CUDA engine of hw/kernels.hpp: kernel bodies in grids, convolutions by cuDNN, dense layers by
// cuBLASLt. No fmt here: nvcc 13 does not compile it.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <vector>

#include "core/fp8.hpp"
#include "hw/cuda/check.hpp"
#include "hw/cuda/convolution.hpp"
#include "hw/cuda/devices.hpp"
#include "hw/cuda/fp8_blocks.cuh"
#include "hw/cuda/fused_attention.hpp"
#include "hw/cuda/grids.cuh"
#include "hw/cuda/launch.cuh"
#include "hw/cuda/matrix.hpp"
#include "hw/cuda/memory.cuh"
#include "hw/kernels_attention.hpp"
#include "hw/kernels_moves.hpp"
#include "hw/memory_plan.hpp"

namespace parsim::hw {

/// Sixteen bytes of zeros.
struct Clear {
  struct alignas(16) Chunk {
    std::uint32_t words[4];
  };
  Chunk* to = nullptr;
  constexpr void operator()(std::uint32_t i) const { to[i] = {}; }
};

/// What an action runs with.
struct CudaContext {
  cudaStream_t stream = nullptr;
  char* workspace = nullptr;  ///< of the device's computing stream
  cudnnContext* dnn = nullptr;
  cublasLtContext* blas = nullptr;
};

inline constexpr std::size_t alignment = 256;
[[nodiscard]] inline std::size_t aligned(std::size_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}

template <class T>
class CudaEngine {
 public:
  using Scalar = T;
  using Action = std::function<void(const CudaContext&)>;

  /// order   of the DAG, or of this process's device
  /// exact   the numbers of the tests; else weights of a size that keeps deep networks finite
  /// like    another of the same DAG, whose plans of libraries serve here, too
  CudaEngine(const ExecDag& dag, const CudaDevices& devices, const Dispatch& order,
             const MemoryRules& rules, bool exact, const CudaEngine* like = nullptr);
  ~CudaEngine();
  CudaEngine(const CudaEngine&) = delete;
  CudaEngine& operator=(const CudaEngine&) = delete;

  [[nodiscard]] View<T> view(const StoreKey& key);
  [[nodiscard]] View<T> view_of(const TensorSlice& slice) { return view(slice.key); }
  [[nodiscard]] View<float> state(const StoreKey& key);
  [[nodiscard]] float* scratch(std::int64_t count) {
    return reinterpret_cast<float*>(buffer(static_cast<std::size_t>(count) * sizeof(float)));
  }
  [[nodiscard]] bool overwrites(const StoreKey& key, const Region& region) const {
    return plan_.first_uses.contains({key, op_}) && region.contains(stores_.all.at(key).box);
  }
  [[nodiscard]] bool gives_back(const StoreKey& key) const {
    return plan_.given_back.contains({key, op_});
  }
  void note_overwritten(const StoreKey& key) { overwritten_.push_back(key); }
  [[nodiscard]] bool has_rivals(const StoreKey& key) const {
    return std::binary_search(received_.begin(), received_.end(), key);
  }
  [[nodiscard]] bool runs(DeviceId device) const { return devices_.runs(device); }
  /// Of other processes' devices NCCL has all that is needed (messages.cuh).
  [[nodiscard]] bool is_apart() const { return false; }
  [[nodiscard]] float rate() const { return exact_ ? static_cast<float>(learning_rate) : 1e-6F; }
  [[nodiscard]] std::int64_t samples() const { return samples_; }

  template <class Body>
  [[nodiscard]] Action for_each(std::uint32_t count, Body body) const {
    constexpr unsigned threads = 256;
    constexpr std::uint32_t most_blocks = 1U << 20;
    const std::uint32_t blocks = std::min(most_blocks, (count - 1) / threads + 1);
    return [=](const CudaContext& context) {
      launch(each_kernel<Body>, blocks, threads, context.stream, count, body);
    };
  }

  [[nodiscard]] Action for_each(std::uint32_t count, const Copy<T>& copy) const {
    constexpr int width = 16 / sizeof(T);
    if (copy.move == Move::atomic_add || !has_lanes(copy.walk, width) ||
        !has_wide_access(copy.to) || !has_wide_access(copy.from)) {
      return for_each<Copy<T>>(count, copy);
    }
    return for_each<CopyLanes<T, width>>(count / width, in_lanes<width>(copy));
  }

  template <int N, class F>
  [[nodiscard]] Action for_each(std::uint32_t count, Packed<T, N, F> body) const {
    constexpr unsigned threads = 256;
    const bool aligned =
        has_wide_access(body.to) && std::all_of(body.from, body.from + N, has_wide_access);
    constexpr std::uint32_t width = 16 / sizeof(T);
    if constexpr (requires { body.f.by_columns(); }) {
      const std::uint32_t columns = body.f.rows;
      if (aligned && body.f.by_columns() && columns % width == 0) {
        const std::uint32_t lines = count / columns;
        const dim3 block = column_block(columns, width);
        const std::uint32_t across = (columns / width - 1) / block.x + 1;
        // What columns share is read by every block: a few blocks a multiprocessor, with many
        // lines.
        const std::uint32_t down =
            std::max(1U, std::min((lines - 1) / (4 * block.y) + 1, 1024 / across));
        return [=](const CudaContext& context) {
          launch(packed_columns<T, N, F>, dim3(across, down), block, context.stream, columns, lines,
                 body);
        };
      }
    }
    const std::uint32_t steps = aligned ? count / width : count;
    const std::uint32_t blocks = steps / threads + 1;
    return [=](const CudaContext& context) {
      if (aligned) {
        launch(packed_kernel<T, N, F>, blocks, threads, context.stream, count, body);
      } else {
        launch(each_kernel<Packed<T, N, F>>, blocks, threads, context.stream, count, body);
      }
    };
  }

  template <class Body>
  [[nodiscard]] Action reduce(std::uint32_t rows, std::uint32_t count, Body body) {
    using Sum = SumOf<Body, float>;
    if constexpr (requires { body.columns; }) {
      constexpr std::uint32_t width = 16 / sizeof(T);
      const auto& from = body.columns.from;
      if (rows % width == 0 && body.columns.step % width == 0 && from[0] != nullptr &&
          std::all_of(std::begin(from), std::end(from), has_wide_access)) {
        const dim3 block = column_block(rows, width);
        const std::uint32_t across = (rows / width - 1) / block.x + 1;
        const std::uint32_t parts =
            std::max(1U, std::min((count - 1) / (8 * block.y) + 1, 512 / across));
        auto* sums = reinterpret_cast<Sum*>(buffer(std::size_t{rows} * parts * sizeof(Sum)));
        return [=](const CudaContext& context) {
          launch(reduce_columns<Body, Sum>, dim3(across, parts), block, context.stream, rows, count,
                 parts, body, sums);
          finish_parts(context, rows, parts, body, sums);
        };
      }
    }
    const bool lines = has_adjacent_terms(body);
    const std::uint32_t row_blocks = lines ? rows : (rows - 1) / reduce_rows + 1;
    // Enough blocks to fill a GPU, each with enough to do.
    const std::uint32_t parts = std::max(1U, std::min((count - 1) / 256 + 1, 1024 / row_blocks));
    auto* sums = reinterpret_cast<Sum*>(buffer(std::size_t{rows} * parts * sizeof(Sum)));
    return [=](const CudaContext& context) {
      if (lines) {
        launch(reduce_lines<Body, Sum>, dim3(row_blocks, parts), line_threads, context.stream, rows,
               count, parts, body, sums);
      } else {
        launch(reduce_parts<Body, Sum>, dim3(row_blocks, parts), dim3(reduce_rows, reduce_lanes),
               context.stream, rows, count, parts, body, sums);
      }
      finish_parts(context, rows, parts, body, sums);
    };
  }

  template <class Body>
  [[nodiscard]] Action each_row(std::uint32_t rows, std::uint32_t count, Body body) const {
    using Sum = SumOf<Body, float>;
    constexpr std::uint32_t long_row = 8192;
    return [=](const CudaContext& context) {
      if (count > long_row) {
        launch(write_rows<long_row_threads, Body, Sum>, rows, long_row_threads, context.stream,
               count, body);
      } else {
        launch(write_rows<line_threads, Body, Sum>, rows, line_threads, context.stream, count,
               body);
      }
    };
  }

  [[nodiscard]] std::optional<Action> convolve(const ConvRequest<T>& request);
  [[nodiscard]] std::optional<Action> multiply(const DenseRequest<T>& request);
  [[nodiscard]] std::optional<Action> multiply_each(const DenseRequest<T>& request);
  [[nodiscard]] std::optional<Action> attend(const AttentionRequest<T>& request);

  /// The device whose kernels are made next.
  void use(DeviceId device);
  /// The operation whose kernels are made next: views are of where tensors lie then.
  void begin(OpId op);
  /// What must be set to zero before the operation whose kernels have been made, by the device of
  /// the memory.
  [[nodiscard]] std::vector<std::pair<DeviceId, Action>> zeros();
  /// Bytes of a device's memory that this has taken.
  [[nodiscard]] Bytes bytes(DeviceId device) const;
  /// Data and weights as before the step; everything else zero.
  void reset();
  /// What begins every step as zero.
  void zero();
  [[nodiscard]] CudaContext context(DeviceId device, cudaStream_t stream) const;
  /// Allocates what the kernels made so far need as workspace.
  void allocate_workspaces();
  /// The store's numbers in the memory's order, and a view of them.
  [[nodiscard]] std::vector<T> download(const StoreKey& key) const;
  [[nodiscard]] const Stores& stores() const { return stores_; }
  [[nodiscard]] Layout layout(const StoreKey& key) const;
  /// Of the kernels of attention made so far: all, and those that store no scores.
  struct AttentionCount {
    int all = 0, fused = 0;
  };
  [[nodiscard]] AttentionCount attention_count() const { return attention_count_; }
  /// Products in FP8 of which kernels were made.
  [[nodiscard]] int fp8_products() const { return fp8_products_; }
  /// Whether casts of delayed scaling look for the largest element first, as in the first step,
  /// which no other came before.
  void look_first(bool first) { looks_first_ = first; }

 private:
  template <class Body, class Sum>
  static void finish_parts(const CudaContext& context, std::uint32_t rows, std::uint32_t parts,
                           const Body& body, const Sum* sums) {
    launch(reduce_finish<Body, Sum>, (rows - 1) / finish_rows + 1,
           dim3(finish_rows, std::min(parts, most_finish_lanes)), context.stream, rows, parts, body,
           sums);
  }
  struct PerDevice {
    DeviceMemory arena, workspace;
    std::size_t workspace_need = 0;
    cudnnContext* dnn = nullptr;
    cublasLtContext* blas = nullptr;
    /// Room for sums: computing operations come one after another, so all of them use the same.
    std::vector<DeviceMemory> buffers;
    std::size_t buffer = 0, used = 0;  ///< by the operation whose kernels are made: up to here
    /// Casts to FP8 so far, what they keep, and whether an operation begins their step.
    std::size_t casts = 0;
    std::vector<DeviceMemory> cast_states;
    bool begins_casts = false;
    /// Made once per shape; null: cuDNN has none.
    std::vector<std::pair<ConvShape, std::shared_ptr<ConvPlan>>> plans;
    std::vector<std::pair<AttentionShape, std::shared_ptr<AttentionPlan>>> attention_plans;
  };
  /// A tensor for a library: dense, aligned; where it is not, a copy in the workspace.
  struct Operand {
    Region region;
    View<T> view;
    bool channels_last = false, direct = false;
    std::size_t offset = 0;  ///< in the workspace, if not direct
    Action pack;             ///< before, for inputs
    [[nodiscard]] void* at(const CudaContext& context) const {
      return direct ? static_cast<void*>(start_of(view, region)) : context.workspace + offset;
    }
  };

  /// A matrix that an operation has cast to FP8, in the workspace.
  struct Fp8Operand {
    View<T> view;
    Region region;
    bool is_transposed = false;
    std::size_t offset = 0;
    const float* unit = nullptr;      ///< without blocks
    std::size_t scales = 0;           ///< offset of the blocks' scales
    std::uint64_t scales_of_one = 0;  ///< of each matrix of a batch
    Action cast{};                    ///< before the product; empty: another product has done it
  };

  [[nodiscard]] char* buffer(std::size_t bytes);
  [[nodiscard]] bool is_in_fp8(const DenseRequest<T>& request) const;
  [[nodiscard]] CastState* cast_state();
  /// batch   matrices that are transposed each by itself
  [[nodiscard]] Fp8Operand fp8_operand(const View<T>& view, const Region& region, bool gradient,
                                       bool transposed, std::int64_t batch);
  /// The same with a scale for each block, `squares` for weights.
  [[nodiscard]] Fp8Operand operand_by_blocks(const View<T>& view, const Region& region,
                                             bool squares, bool transposed, std::int64_t batch);
  /// Nothing if cuBLASLt cannot.
  [[nodiscard]] std::optional<Action> multiply_in_fp8(const DenseRequest<T>& request);
  void need_workspace(std::size_t bytes);
  [[nodiscard]] std::shared_ptr<AttentionPlan> attention_plan(const AttentionShape& shape);
  /// Nothing if the request cannot be fused, or the forward pass was not.
  [[nodiscard]] std::optional<Action> attend_fused(const AttentionRequest<T>& request);
  [[nodiscard]] std::optional<Action> attend_by_scores(const AttentionRequest<T>& request);
  [[nodiscard]] std::shared_ptr<MatrixPlan> matrix_plan(MatrixShape shape);
  [[nodiscard]] Operand operand(const View<T>& view, const Region& region, bool channels_last,
                                bool result, bool overwrites, std::size_t& used);
  /// What a library is called with.
  struct LibraryCall {
    void *x, *w, *y;
    char* workspace;
    bool adds;  ///< to the result
  };
  /// A library's product, with copies before and after where its operands are not dense. `direct`:
  /// the library may write to the result itself. `run(context, call)` calls it.
  template <class Request, class Run>
  [[nodiscard]] Action by_library(const Request& request, bool channels_last, bool direct,
                                  std::int64_t workspace_bytes, Run run);
  /// Copy between an operand's tensor and its dense place in the workspace.
  [[nodiscard]] Action move(const Operand& operand, bool into_workspace, Move how) const;

  const ExecDag& dag_;
  const CudaDevices& devices_;
  bool exact_;
  Stores stores_;
  std::int64_t samples_ = 1;
  MemoryPlan plan_;
  OpId op_;
  std::vector<StoreKey> overwritten_;  ///< by the operation whose kernels are made
  std::vector<PerDevice> per_device_;
  std::vector<StoreKey> received_;
  DeviceId current_{0};
  std::set<StoreKey> statistics_;  ///< that forward passes leave
  AttentionCount attention_count_;
  Precision precision_;            ///< of all but products in FP8
  std::vector<bool> in_fp8_;       ///< by layer; empty: none
  std::vector<Fp8Operand> casts_;  ///< of the operation whose kernels are made
  std::size_t kept_ = 0;           ///< first bytes of the workspace, which its casts hold
  bool looks_first_ = false;
  int fp8_products_ = 0;
};

}  // namespace parsim::hw

#include "hw/cuda/attention.cuh"
#include "hw/cuda/attention_fused.cuh"
#include "hw/cuda/engine_impl.cuh"
#include "hw/cuda/products_fp8.cuh"
