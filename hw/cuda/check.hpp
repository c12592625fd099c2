// Every call of a CUDA library is checked: a failure names the call, the library and the error.
#pragma once

#include <string>

#include "hw/hardware.hpp"

namespace parsim::hw {

/// Texts of errors, by library (check.cpp).
[[nodiscard]] std::string cuda_error_text(int code);
[[nodiscard]] std::string cudnn_error_text(int code);
[[nodiscard]] std::string cublas_error_text(int code);
[[nodiscard]] std::string nccl_error_text(int code);

/// Throws HardwareError unless `code`, an enumerator of the library, is 0.
template <class Code>
void cuda_check(Code code, const char* call) {
  if (static_cast<int>(code) == 0) return;
  throw HardwareError(std::string(call) + ": CUDA: " + cuda_error_text(static_cast<int>(code)));
}
template <class Code>
void cudnn_check(Code code, const char* call) {
  if (static_cast<int>(code) == 0) return;
  throw HardwareError(std::string(call) + ": cuDNN: " + cudnn_error_text(static_cast<int>(code)));
}
template <class Code>
void cublas_check(Code code, const char* call) {
  if (static_cast<int>(code) == 0) return;
  throw HardwareError(std::string(call) +
                      ": cuBLASLt: " + cublas_error_text(static_cast<int>(code)));
}
template <class Code>
void nccl_check(Code code, const char* call) {
  if (static_cast<int>(code) == 0) return;
  throw HardwareError(std::string(call) + ": NCCL: " + nccl_error_text(static_cast<int>(code)));
}

}  // namespace parsim::hw
