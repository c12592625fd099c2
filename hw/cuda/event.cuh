// CUDA events that go away.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "core/units.hpp"
#include "hw/cuda/check.hpp"

namespace parsim::hw {

class Event {
 public:
  explicit Event(bool timed) {
    cuda_check(cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming),
               "cudaEventCreateWithFlags");
  }
  ~Event() {
    if (event_ != nullptr) static_cast<void>(cudaEventDestroy(event_));
  }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&&) = delete;
  [[nodiscard]] cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

[[nodiscard]] inline Seconds between(const Event& a, const Event& b) {
  float milliseconds = 0;
  cuda_check(cudaEventElapsedTime(&milliseconds, a.get(), b.get()), "cudaEventElapsedTime");
  return Seconds{1e-3 * static_cast<double>(milliseconds)};
}

}  // namespace parsim::hw
