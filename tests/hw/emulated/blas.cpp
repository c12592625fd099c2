// cuBLASLt on the emulated GPUs: products of matrices that are counted by columns.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "tests/hw/emulated/fp8.hpp"
#include "tests/hw/emulated/machine.hpp"

struct cublasLtContext {
  int device = 0;
};

namespace emulated {

namespace {

struct Operation {
  bool rounds = false;
  cublasOperation_t a = CUBLAS_OP_N, b = CUBLAS_OP_N;
  std::array<const float*, 2> scales{};  ///< of a and b, if they are in FP8; null: 1
  std::array<std::int32_t, 2> modes{};   ///< what they are scales of
};
struct Layout {
  cudaDataType_t type;
  std::int64_t rows, columns, leading;
  std::int32_t batch = 1;
  std::int64_t apart = 0;

  [[nodiscard]] std::int64_t tall(cublasOperation_t how) const {
    return how == CUBLAS_OP_T ? columns : rows;
  }
  [[nodiscard]] std::int64_t wide(cublasOperation_t how) const {
    return how == CUBLAS_OP_T ? rows : columns;
  }
};
constexpr std::size_t workspace_wanted = 4096;

struct Preference {
  std::size_t workspace = 0;
  std::array<std::uint32_t, 4> alignment{256, 256, 256, 256};  ///< of a, b, c and d, as by default
};

bool is_aligned(const void* data, std::uint64_t bytes) {
  return reinterpret_cast<std::uintptr_t>(data) % bytes == 0;
}

const Operation& of(cublasLtMatmulDesc_t handle) {
  return *reinterpret_cast<const Operation*>(handle);
}
const Layout& of(cublasLtMatrixLayout_t handle) { return *reinterpret_cast<const Layout*>(handle); }

bool is_fp8(cudaDataType_t type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }

/// cuBLASLt's documentation, "128-element 1D and 128x128 2D block scaling for FP8 data types".
bool agree_by_blocks(const Operation& how, const Layout& c) {
  constexpr std::int32_t lines = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
  constexpr std::int32_t squares = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
  const auto is = [&](std::int32_t a, std::int32_t b) { return how.modes == std::array{a, b}; };
  return settings().capability == 90 && c.rows % 4 == 0 && c.columns % 4 == 0 && c.batch == 1 &&
         (is(lines, lines) || is(lines, squares) || is(squares, lines));
}

/// cuBLASLt's documentation of cublasLtMatmul: A transposed and B not before compute capability 10,
/// sizes and pointers by 16 bytes, not both operands E5M2. Columns of B and C may be any number, as
/// PyTorch's _scaled_mm has it.
bool agree_in_fp8(const Operation& how, const Layout& a, const Layout& b, const Layout& c) {
  const bool types = is_fp8(b.type) && c.type == CUDA_R_16BF &&
                     (a.type == CUDA_R_8F_E4M3 || b.type == CUDA_R_8F_E4M3);
  const bool sizes = a.rows == b.rows && a.columns == c.rows && b.columns == c.columns;
  if (how.modes != decltype(how.modes){} && !agree_by_blocks(how, c)) return false;
  return types && sizes && how.a == CUBLAS_OP_T && how.b == CUBLAS_OP_N && a.rows % 16 == 0 &&
         a.columns % 16 == 0 && a.leading % 16 == 0 && b.leading % 16 == 0 && c.leading % 8 == 0 &&
         a.batch == b.batch && a.batch == c.batch && a.apart % 16 == 0 && b.apart % 16 == 0 &&
         c.apart % 8 == 0;
}

bool agree(const Operation& how, const Layout& a, const Layout& b, const Layout& c) {
  if (is_fp8(a.type)) return agree_in_fp8(how, a, b, c);
  const bool sizes =
      a.wide(how.a) == b.tall(how.b) && a.tall(how.a) == c.rows && b.wide(how.b) == c.columns;
  const bool lines = a.leading >= a.rows && b.leading >= b.rows && c.leading >= c.rows;
  return sizes && lines && a.batch == b.batch && a.batch == c.batch && a.type == b.type &&
         a.type == c.type &&
         (a.type == CUDA_R_32F || a.type == CUDA_R_16BF || a.type == CUDA_R_16F);
}

template <class T>
void multiply_one(const Operation& how, const Layout& la, const T* a, const Layout& lb, const T* b,
                  const Layout& lc, T* c, double beta) {
  const auto at = [](const Layout& l, cublasOperation_t o, std::int64_t row, std::int64_t column) {
    return o == CUBLAS_OP_T ? column + row * l.leading : row + column * l.leading;
  };
  for (std::int64_t j = 0; j < lc.columns; ++j) {
    for (std::int64_t i = 0; i < lc.rows; ++i) {
      const std::int64_t at_c = i + j * lc.leading;
      double sum = beta == 0 ? 0 : beta * double{static_cast<float>(c[at_c])};
      for (std::int64_t k = 0; k < la.wide(how.a); ++k) {
        sum += double{factor(static_cast<float>(a[at(la, how.a, i, k)]), how.rounds)} *
               double{factor(static_cast<float>(b[at(lb, how.b, k, j)]), how.rounds)};
      }
      c[at_c] = T(static_cast<float>(sum));
    }
  }
}

Fp8Format format_of(const Layout& layout) { return layout.type == CUDA_R_8F_E4M3 ? e4m3 : e5m2; }

std::vector<double> numbers_in_fp8(const Layout& layout, const std::uint8_t* codes) {
  std::vector<double> all;
  const Fp8Format format = format_of(layout);
  for (std::int64_t i = 0; i < layout.leading * layout.columns; ++i) {
    all.push_back(double{from_fp8(format, codes[i])});
  }
  return all;
}

/// Of an element of operand 0 or 1, by the layouts of the same documentation: the operand has
/// `lines` of `summed` elements.
double scale_at(const Operation& how, std::size_t operand, std::int64_t lines, std::int64_t summed,
                std::int64_t line, std::int64_t k) {
  const float* const scales = how.scales[operand];
  if (scales == nullptr) return 1;
  const std::int64_t blocks = (summed + 127) / 128;
  switch (how.modes[operand]) {
    case CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F:
      return double{scales[line + lines * (k / 128)]};
    case CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F:
      return double{scales[k / 128 + (blocks + 3) / 4 * 4 * (line / 128)]};
    default:
      return double{*scales};
  }
}

void multiply_one_in_fp8(const Operation& how, const Layout& la, const std::uint8_t* a,
                         const Layout& lb, const std::uint8_t* b, const Layout& lc,
                         __nv_bfloat16* c, double beta) {
  const std::vector<double> left = numbers_in_fp8(la, a);
  const std::vector<double> right = numbers_in_fp8(lb, b);
  for (std::int64_t j = 0; j < lc.columns; ++j) {
    for (std::int64_t i = 0; i < lc.rows; ++i) {
      double sum = 0, part = 0;
      for (std::int64_t k = 0; k < la.rows; ++k) {
        part += left[static_cast<std::size_t>(k + i * la.leading)] *
                right[static_cast<std::size_t>(k + j * lb.leading)];
        if (k % 128 != 127 && k + 1 != la.rows) continue;
        sum += part * scale_at(how, 0, lc.rows, la.rows, i, k) *
               scale_at(how, 1, lc.columns, la.rows, j, k);
        part = 0;
      }
      __nv_bfloat16& to = c[i + j * lc.leading];
      const double before = beta == 0 ? 0 : beta * double{static_cast<float>(to)};
      to = __nv_bfloat16(sum + before);
    }
  }
}

/// The scales of a and b are those of all products of the batch.
void multiply_in_fp8(const Operation& how, const Layout& la, const void* a, const Layout& lb,
                     const void* b, const Layout& lc, __nv_bfloat16* c, double beta) {
  ++fp8_products()[std::to_string(format_of(la).mantissa) + " " +
                   std::to_string(format_of(lb).mantissa)];
  for (std::int32_t n = 0; n < lc.batch; ++n) {
    multiply_one_in_fp8(how, la, static_cast<const std::uint8_t*>(a) + n * la.apart, lb,
                        static_cast<const std::uint8_t*>(b) + n * lb.apart, lc, c + n * lc.apart,
                        beta);
  }
}

template <class T>
void multiply(const Operation& how, const Layout& la, const T* a, const Layout& lb, const T* b,
              const Layout& lc, T* c, double beta) {
  for (std::int32_t n = 0; n < lc.batch; ++n) {
    multiply_one(how, la, a + n * la.apart, lb, b + n * lb.apart, lc, c + n * lc.apart, beta);
  }
}

}  // namespace

std::map<std::string, int>& fp8_products() {
  static std::map<std::string, int> counts;
  return counts;
}

}  // namespace emulated

using namespace emulated;

extern "C" {

const char* cublasLtGetStatusString(cublasStatus_t) { return "emulated cuBLASLt's error"; }
std::size_t cublasLtGetVersion(void) { return settings().blas; }
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext{current_device()};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* operation,
                                        cublasComputeType_t compute, cudaDataType_t scale) {
  if (scale != CUDA_R_32F) return CUBLAS_STATUS_NOT_SUPPORTED;
  *operation = reinterpret_cast<cublasLtMatmulDesc_t>(
      new Operation{.rounds = compute == CUBLAS_COMPUTE_32F_FAST_TF32});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation) {
  delete reinterpret_cast<Operation*>(operation);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t handle,
                                              cublasLtMatmulDescAttributes_t name,
                                              const void* value, std::size_t bytes) {
  auto* operation = reinterpret_cast<Operation*>(handle);
  const bool scales =
      name == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER || name == CUBLASLT_MATMUL_DESC_B_SCALE_POINTER;
  const std::size_t wanted = scales                                    ? sizeof(void*)
                             : name == CUBLASLT_MATMUL_DESC_FAST_ACCUM ? sizeof(std::int8_t)
                                                                       : sizeof(std::int32_t);
  if (bytes != wanted) return CUBLAS_STATUS_INVALID_VALUE;
  if (scales) {
    std::memcpy(&operation->scales[name == CUBLASLT_MATMUL_DESC_A_SCALE_POINTER ? 0 : 1], value,
                bytes);
  }
  const auto mode = static_cast<std::size_t>(name - CUBLASLT_MATMUL_DESC_A_SCALE_MODE);
  if (mode < 2) std::memcpy(&operation->modes[mode], value, bytes);
  if (name == CUBLASLT_MATMUL_DESC_TRANSA) std::memcpy(&operation->a, value, bytes);
  if (name == CUBLASLT_MATMUL_DESC_TRANSB) std::memcpy(&operation->b, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          std::uint64_t rows, std::uint64_t columns,
                                          std::int64_t leading) {
  *layout = reinterpret_cast<cublasLtMatrixLayout_t>(
      new Layout{.type = type,
                 .rows = static_cast<std::int64_t>(rows),
                 .columns = static_cast<std::int64_t>(columns),
                 .leading = leading});
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t handle,
                                                cublasLtMatrixLayoutAttribute_t name,
                                                const void* value, std::size_t bytes) {
  auto* layout = reinterpret_cast<Layout*>(handle);
  if (name == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && bytes == sizeof layout->batch) {
    std::memcpy(&layout->batch, value, bytes);
  } else if (name == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET && bytes == sizeof layout->apart) {
    std::memcpy(&layout->apart, value, bytes);
  } else {
    return CUBLAS_STATUS_INVALID_VALUE;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete reinterpret_cast<Layout*>(layout);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = reinterpret_cast<cublasLtMatmulPreference_t>(new Preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete reinterpret_cast<Preference*>(preference);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t handle,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void* value, std::size_t bytes) {
  auto* preference = reinterpret_cast<Preference*>(handle);
  if (name == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES) {
    if (bytes != sizeof preference->workspace) return CUBLAS_STATUS_INVALID_VALUE;
    std::memcpy(&preference->workspace, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
  }
  const auto operand = static_cast<std::size_t>(name - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
  if (operand > 3 || bytes != sizeof(std::uint32_t)) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(&preference->alignment[operand], value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t operation,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t preference, int asked,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* found) {
  *found = 0;
  if (asked < 1 || !agree(of(operation), of(a), of(b), of(c))) return CUBLAS_STATUS_INVALID_VALUE;
  const auto& wanted = *reinterpret_cast<const Preference*>(preference);
  if (wanted.workspace < workspace_wanted) return CUBLAS_STATUS_NOT_SUPPORTED;
  *results = {};
  std::copy(wanted.alignment.begin(), wanted.alignment.end(), results->algo.data);
  results->workspaceSize = workspace_wanted;
  *found = 1;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* c, cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t, const cublasLtMatmulAlgo_t* algorithm,
                              void* workspace, std::size_t workspace_bytes, cudaStream_t stream) {
  const double factor_of_c = *static_cast<const float*>(beta);
  const bool usual = *static_cast<const float*>(alpha) == 1 && c == d;
  const bool there = workspace != nullptr && workspace_bytes >= workspace_wanted;
  const Operation how = of(operation);
  const Layout la = of(a_layout);
  const Layout lb = of(b_layout);
  const Layout lc = of(c_layout);
  const std::uint64_t* bytes = algorithm->data;
  const bool aligned = is_aligned(a, bytes[0]) && is_aligned(b, bytes[1]) &&
                       is_aligned(c, bytes[2]) && is_aligned(d, bytes[3]);
  for (std::size_t operand = 0; is_fp8(la.type) && operand < 2; ++operand) {
    const std::uint64_t wanted = how.modes[operand] == 0 ? sizeof(float) : 16;
    if (!is_aligned(how.scales[operand], wanted)) return CUBLAS_STATUS_INVALID_VALUE;
  }
  if (!aligned || !usual || !there || !agree(how, la, lb, lc)) return CUBLAS_STATUS_INVALID_VALUE;
  if (handle->device != stream_of(stream)->device) return CUBLAS_STATUS_INVALID_VALUE;
  const CUstream_st& on = *stream_of(stream);
  const auto work = [=, &on](Nanoseconds start) {
    if (settings().numbers) std::memset(workspace, 0xff, workspace_wanted);
    if (!settings().numbers) {
      // nothing but time
    } else if (is_fp8(la.type)) {
      multiply_in_fp8(how, la, a, lb, b, lc, static_cast<__nv_bfloat16*>(d), factor_of_c);
    } else if (la.type == CUDA_R_32F) {
      multiply(how, la, static_cast<const float*>(a), lb, static_cast<const float*>(b), lc,
               static_cast<float*>(d), factor_of_c);
    } else if (la.type == CUDA_R_16F) {
      multiply(how, la, static_cast<const __half*>(a), lb, static_cast<const __half*>(b), lc,
               static_cast<__half*>(d), factor_of_c);
    } else {
      multiply(how, la, static_cast<const __nv_bfloat16*>(a), lb,
               static_cast<const __nv_bfloat16*>(b), lc, static_cast<__nv_bfloat16*>(d),
               factor_of_c);
    }
    const auto products = static_cast<double>(lc.batch * lc.rows * lc.columns * la.wide(how.a));
    const auto k = la.wide(how.a);
    const auto elements =
        static_cast<double>(lc.batch * (lc.rows * lc.columns + k * (lc.rows + lc.columns)));
    const double size = la.type == CUDA_R_32F ? 4 : is_fp8(la.type) ? 1 : 2;
    const double each = is_fp8(la.type) ? 1 : 2;  // operations, as much as 16 bits' take
    return std::optional(start + gemm_time(each * products, size * elements, on));
  };
  return put(stream, work) == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}
}
