// Memory of a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <utility>

#include "hw/cuda/check.hpp"
#include "hw/hardware.hpp"

namespace parsim::hw {

/// It goes away.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(std::size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    const cudaError_t error = cudaMalloc(&data_, bytes);
    if (error == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      throw MemoryError("the GPU has no " + std::to_string(bytes >> 20) + " MiB left");
    }
    cuda_check(error, "cudaMalloc");
  }
  ~DeviceMemory() { static_cast<void>(cudaFree(data_)); }
  DeviceMemory(DeviceMemory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }
  [[nodiscard]] char* get() const { return static_cast<char*>(data_); }

 private:
  void* data_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace parsim::hw
