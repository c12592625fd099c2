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

class MatrixPlan {
 public:
  /// Null if cuBLASLt has no algorithm.
  [[nodiscard]] static std::unique_ptr<MatrixPlan> make(cublasLtContext* handle,
                                                        const MatrixShape& shape,
                                                        int multiprocessors);
  ~MatrixPlan();
  MatrixPlan(const MatrixPlan&) = delete;
  MatrixPlan& operator=(const MatrixPlan&) = delete;

  [[nodiscard]] std::int64_t workspace_bytes() const;
  /// The result overwrites what is there, or is added to it.
  void run(cublasLtContext* handle, void* x, void* w, void* y, bool adds, void* workspace,
           CUstream_st* stream) const;

 private:
  struct Parts;
  MatrixPlan();
  std::unique_ptr<Parts> parts_;
};

}  // namespace parsim::hw
