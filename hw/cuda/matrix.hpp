// Products of dense matrices through cuBLASLt.
#pragma once

#include <cstdint>
#include <memory>

#include "core/units.hpp"
#include "hw/kernels_products.hpp"

struct cublasLtContext;
struct CUstream_st;

namespace parsim::hw {

/// y = x · wᵀ and its gradients; all row-major: x rows × inner, w columns × inner, y rows ×
/// columns.
struct MatrixShape {
  Product product = Product::forward;
  Precision precision = Precision::fp32;
  std::int64_t rows = 0, columns = 0, inner = 0;
  std::int64_t batch = 1;  ///< products of matrices that lie behind each other
};

/// Of operands in FP8: numbers that they are multiplied by, in the device's memory; one for each,
/// or one for each block as hw/cuda/fp8_blocks.cuh has them, by squares for weights.
struct Fp8Units {
  const float* a = nullptr;
  const float* b = nullptr;
  bool by_blocks = false;
};
/// Rows of the copies that a gradient of weights sums over; those beyond the matrix are zeros.
[[nodiscard]] constexpr std::int64_t padded_rows(std::int64_t rows) {
  return (rows + 15) / 16 * 16;
}

class MatrixPlan {
 public:
  /// Null if cuBLASLt has no algorithm.
  [[nodiscard]] static std::unique_ptr<MatrixPlan> make(cublasLtContext* handle,
                                                        const MatrixShape& shape,
                                                        int multiprocessors);
  /// The same of operands in FP8, of which both have what is summed lying side by side: Hopper's
  /// and Ada's tensor cores read no other. The result is bf16.
  ///
  ///     forward   y = a · bᵀ      a: w, columns × inner         b: x, rows × inner
  ///     data      x = a · bᵀ      a: wᵀ, inner × columns        b: y, rows × columns
  ///     weights   w = a · bᵀ      a: xᵀ, inner × padded rows    b: yᵀ, columns × padded rows
  ///
  /// each of them as cuBLASLt's column-major result. Weights and inputs are E4M3, gradients of
  /// outputs E5M2, E4M3 if they have numbers by blocks; without those a batch has one number for
  /// all of its a, one for all of its b. Null if cuBLASLt has no algorithm.
  [[nodiscard]] static std::unique_ptr<MatrixPlan> make_in_fp8(cublasLtContext* handle,
                                                               const MatrixShape& shape,
                                                               const Fp8Units& units,
                                                               int multiprocessors);
  ~MatrixPlan();
  MatrixPlan(const MatrixPlan&) = delete;
  MatrixPlan& operator=(const MatrixPlan&) = delete;

  [[nodiscard]] std::int64_t workspace_bytes() const;
  /// The next products take others of the same kind.
  void set_units(const Fp8Units& units) const;
  /// The result overwrites what is there, or is added to it.
  void run(cublasLtContext* handle, void* x, void* w, void* y, bool adds, void* workspace,
           CUstream_st* stream) const;
  /// The same by operands as cuBLASLt has them.
  void multiply(cublasLtContext* handle, const void* a, const void* b, void* c, bool adds,
                void* workspace, CUstream_st* stream) const;

 private:
  struct Parts;
  MatrixPlan();
  std::unique_ptr<Parts> parts_;
};

}  // namespace parsim::hw
