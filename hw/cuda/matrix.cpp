#include "hw/cuda/matrix.hpp"

#include <cublasLt.h>

#include "hw/cuda/check.hpp"

namespace parsim::hw {

namespace {

constexpr std::size_t most_workspace = std::size_t{32} << 20;

cudaDataType_t matrix_type(Precision precision) {
  return precision == Precision::bf16   ? CUDA_R_16BF
         : precision == Precision::fp16 ? CUDA_R_16F
                                        : CUDA_R_32F;
}

}  // namespace

struct MatrixPlan::Parts {
  MatrixShape shape;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  cublasLtMatmulHeuristicResult_t choice{};

  void set(cublasLtMatmulDescAttributes_t name, const auto& value) const {
    cublas_check(cublasLtMatmulDescSetAttribute(operation, name, &value, sizeof value),
                 "cublasLtMatmulDescSetAttribute");
  }
  /// Column-major matrices without gaps, `batch` of them behind each other.
  void layout(cublasLtMatrixLayout_t& to, cudaDataType_t type, std::int64_t rows,
              std::int64_t columns) const {
    cublas_check(cublasLtMatrixLayoutCreate(&to, type, static_cast<std::uint64_t>(rows),
                                            static_cast<std::uint64_t>(columns), rows),
                 "cublasLtMatrixLayoutCreate");
    if (shape.batch == 1) return;
    const auto count = static_cast<std::int32_t>(shape.batch);
    const std::int64_t apart = rows * columns;
    cublas_check(cublasLtMatrixLayoutSetAttribute(to, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                                  sizeof count),
                 "cublasLtMatrixLayoutSetAttribute");
    cublas_check(cublasLtMatrixLayoutSetAttribute(to, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                                  &apart, sizeof apart),
                 "cublasLtMatrixLayoutSetAttribute");
  }
  /// Squares for weights, lines for all else. False if this is another cuBLASLt.
  [[nodiscard]] bool scale_by_blocks() const {
#if CUBLAS_VERSION >= 120900
    const std::int32_t lines = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    const std::int32_t squares = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, shape.product == Product::weights ? lines : squares);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, lines);
    return true;
#else
    return false;
#endif
  }
  /// Whether cuBLASLt has an algorithm.
  [[nodiscard]] bool choose(cublasLtContext* handle) {
    cublasLtMatmulPreference_t preference = nullptr;
    cublas_check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    static_cast<void>(cublasLtMatmulPreferenceSetAttribute(preference,
                                                           CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                           &most_workspace, sizeof most_workspace));
    // Parts of tensors begin where they do; operand() asks for this much.
    for (const cublasLtMatmulPreferenceAttributes_t name :
         {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
          CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}) {
      constexpr std::uint32_t bytes = 16;
      static_cast<void>(
          cublasLtMatmulPreferenceSetAttribute(preference, name, &bytes, sizeof bytes));
    }
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(handle, operation, a, b, c, c,
                                                                 preference, 1, &choice, &found);
    static_cast<void>(cublasLtMatmulPreferenceDestroy(preference));
    return status == CUBLAS_STATUS_SUCCESS && found > 0;
  }

  ~Parts() {
    if (a != nullptr) static_cast<void>(cublasLtMatrixLayoutDestroy(a));
    if (b != nullptr) static_cast<void>(cublasLtMatrixLayoutDestroy(b));
    if (c != nullptr) static_cast<void>(cublasLtMatrixLayoutDestroy(c));
    if (operation != nullptr) static_cast<void>(cublasLtMatmulDescDestroy(operation));
  }
};

MatrixPlan::MatrixPlan() : parts_(std::make_unique<Parts>()) {}
MatrixPlan::~MatrixPlan() = default;

// cuBLAS counts by columns, so a row-major matrix is its transpose. With ' for what it sees:
//
//     forward   y' (columns × rows)  = w'ᵀ · x'     w' = inner × columns, x' = inner × rows
//     data      x' (inner × rows)    = w'  · y'     y' = columns × rows
//     weights   w' (inner × columns) = x'  · y'ᵀ
std::unique_ptr<MatrixPlan> MatrixPlan::make(cublasLtContext* handle, const MatrixShape& shape,
                                             int multiprocessors) {
  std::unique_ptr<MatrixPlan> plan(new MatrixPlan);
  Parts& p = *plan->parts_;
  p.shape = shape;
  const cudaDataType_t type = matrix_type(shape.precision);
  const cublasComputeType_t compute =
      shape.precision == Precision::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  cublas_check(cublasLtMatmulDescCreate(&p.operation, compute, CUDA_R_32F),
               "cublasLtMatmulDescCreate");
  const cublasOperation_t as_is = CUBLAS_OP_N;
  const cublasOperation_t transposed = CUBLAS_OP_T;
  p.set(CUBLASLT_MATMUL_DESC_TRANSA, shape.product == Product::forward ? transposed : as_is);
  p.set(CUBLASLT_MATMUL_DESC_TRANSB, shape.product == Product::weights ? transposed : as_is);
  if (multiprocessors > 0) {
    p.set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, static_cast<std::int32_t>(multiprocessors));
  }
  const auto weights = [&](auto& to) { p.layout(to, type, shape.inner, shape.columns); };
  const auto input = [&](auto& to) { p.layout(to, type, shape.inner, shape.rows); };
  const auto output = [&](auto& to) { p.layout(to, type, shape.columns, shape.rows); };
  switch (shape.product) {
    case Product::forward:
      weights(p.a);
      input(p.b);
      output(p.c);
      break;
    case Product::data:
      weights(p.a);
      output(p.b);
      input(p.c);
      break;
    case Product::weights:
      input(p.a);
      output(p.b);
      weights(p.c);
  }
  if (!p.choose(handle)) return nullptr;
  return plan;
}

std::unique_ptr<MatrixPlan> MatrixPlan::make_in_fp8(cublasLtContext* handle,
                                                    const MatrixShape& shape, const Fp8Units& units,
                                                    int multiprocessors) {
  std::unique_ptr<MatrixPlan> plan(new MatrixPlan);
  Parts& p = *plan->parts_;
  p.shape = shape;
  cublas_check(cublasLtMatmulDescCreate(&p.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "cublasLtMatmulDescCreate");
  const bool forward = shape.product == Product::forward;
  p.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  p.set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  plan->set_units(units);
  // Transformer Engine sums gradients in more bits than activations, and all that it scales by
  // blocks (use_split_accumulator).
  const bool fast = forward && !units.by_blocks;
  p.set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(fast ? 1 : 0));
  if (units.by_blocks && !p.scale_by_blocks()) return nullptr;
  if (multiprocessors > 0) {
    p.set(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, static_cast<std::int32_t>(multiprocessors));
  }
  const std::int64_t summed = forward                          ? shape.inner
                              : shape.product == Product::data ? shape.columns
                                                               : padded_rows(shape.rows);
  const std::int64_t tall = forward ? shape.columns : shape.inner;
  const std::int64_t wide = shape.product == Product::weights ? shape.columns : shape.rows;
  p.layout(p.a, CUDA_R_8F_E4M3, summed, tall);
  p.layout(p.b, forward || units.by_blocks ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2, summed, wide);
  p.layout(p.c, CUDA_R_16BF, tall, wide);
  if (!p.choose(handle)) return nullptr;
  return plan;
}

std::int64_t MatrixPlan::workspace_bytes() const {
  return static_cast<std::int64_t>(parts_->choice.workspaceSize);
}

void MatrixPlan::set_units(const Fp8Units& units) const {
  parts_->set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, units.a);
  parts_->set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, units.b);
}

void MatrixPlan::run(cublasLtContext* handle, void* x, void* w, void* y, bool adds, void* workspace,
                     CUstream_st* stream) const {
  const Product product = parts_->shape.product;
  multiply(handle, product == Product::weights ? x : w, product == Product::forward ? x : y,
           product == Product::forward ? y
           : product == Product::data  ? x
                                       : w,
           adds, workspace, stream);
}

void MatrixPlan::multiply(cublasLtContext* handle, const void* a, const void* b, void* c, bool adds,
                          void* workspace, CUstream_st* stream) const {
  const Parts& p = *parts_;
  const float one = 1;
  const float rest = adds ? 1 : 0;
  cublas_check(cublasLtMatmul(handle, p.operation, &one, a, p.a, b, p.b, &rest, c, p.c, c, p.c,
                              &p.choice.algo, workspace, p.choice.workspaceSize, stream),
               "cublasLtMatmul");
}

}  // namespace parsim::hw
