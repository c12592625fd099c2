// cuDNN's graph API: its descriptors, and the plan of a graph that its heuristics offer.
#pragma once

#include <cudnn.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/units.hpp"
#include "hw/cuda/check.hpp"

namespace parsim::hw {

/// A descriptor of cuDNN's backend API.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(cudnnBackendDescriptorType_t type) {
    cudnn_check(cudnnBackendCreateDescriptor(type, &handle_), "cudnnBackendCreateDescriptor");
  }
  ~Descriptor() {
    if (handle_ != nullptr) static_cast<void>(cudnnBackendDestroyDescriptor(handle_));
  }
  Descriptor(Descriptor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }

  [[nodiscard]] cudnnBackendDescriptor_t raw() const { return handle_; }
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
           const void* values) {
    cudnn_check(cudnnBackendSetAttribute(handle_, name, type, count, values),
                "cudnnBackendSetAttribute");
  }
  template <class Value>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, Value value) {
    set(name, type, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, const std::vector<std::int64_t>& values) {
    set(name, CUDNN_TYPE_INT64, static_cast<std::int64_t>(values.size()), values.data());
  }
  void set(cudnnBackendAttributeName_t name, const Descriptor& other) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, other.handle_);
  }
  void finalize() { cudnn_check(cudnnBackendFinalize(handle_), "cudnnBackendFinalize"); }
  [[nodiscard]] bool try_finalize() {
    return cudnnBackendFinalize(handle_) == CUDNN_STATUS_SUCCESS;
  }

 private:
  cudnnBackendDescriptor_t handle_ = nullptr;
};

[[nodiscard]] cudnnDataType_t data_type(Precision precision);

/// The first plan that cuDNN's heuristics offer for a graph and that can be made, if any.
class GraphPlan {
 public:
  GraphPlan() = default;
  /// handle            null: for a device that `device_json` describes; it cannot be executed
  /// multiprocessors   what the heuristics may count on; 0: all
  /// unwanted          of a configuration of an engine; null: none is
  GraphPlan(cudnnContext* handle, const std::string& device_json,
            const std::vector<cudnnBackendDescriptor_t>& operations, int multiprocessors,
            bool (*unwanted)(const Descriptor&));

  [[nodiscard]] bool exists() const { return plan_.raw() != nullptr; }
  [[nodiscard]] std::int64_t workspace_bytes() const { return workspace_; }
  /// On the handle's stream. Pointers by the tensors' ids: to memory of the GPU, of numbers that
  /// are passed by value to the host's.
  void run(cudnnContext* handle, const std::vector<std::pair<std::int64_t, void*>>& tensors,
           void* workspace) const;

 private:
  Descriptor device_, graph_, plan_;
  std::int64_t workspace_ = 0;
};

}  // namespace parsim::hw
