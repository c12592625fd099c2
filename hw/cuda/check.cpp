#include "hw/cuda/check.hpp"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <nccl.h>

namespace parsim::hw {

std::string cuda_error_text(int code) {
  const auto error = static_cast<cudaError_t>(code);
  return std::string(cudaGetErrorName(error)) + " (" + cudaGetErrorString(error) + ")";
}
std::string cudnn_error_text(int code) {
  return cudnnGetErrorString(static_cast<cudnnStatus_t>(code));
}
std::string cublas_error_text(int code) {
  return cublasLtGetStatusString(static_cast<cublasStatus_t>(code));
}
std::string nccl_error_text(int code) {
  return ncclGetErrorString(static_cast<ncclResult_t>(code));
}

}  // namespace parsim::hw
