// Which cores of the machine belong to which logical device, and threads that stay on them.
#pragma once

#include <vector>

#include "core/ids.hpp"
#include "core/profile.hpp"

namespace parsim::hw {

class CpuCores {
 public:
  /// As CpuExecutor's constructor.
  explicit CpuCores(const std::vector<int>& partition);

  [[nodiscard]] int count(DeviceId device) const {
    return static_cast<int>(of_device_[device.index()].size());
  }
  [[nodiscard]] std::size_t devices() const { return of_device_.size(); }
  /// Puts the calling thread, and the threads that its parallel loops will have, on the device's
  /// cores; denormal numbers count as zero there, so that no kernel's time depends on its numbers.
  ///
  /// moves   it copies messages, while another thread computes on the same cores: it asks for short
  ///         time slices, by which the scheduler (Linux 6.12) lets it begin at once
  void use(DeviceId device, bool moves) const;
  /// Only the number of threads of the calling thread's parallel loops: oneDNN chooses its kernels
  /// by it.
  void count_on(DeviceId device) const;

  /// Peaks and rates are guesses by the instruction set.
  [[nodiscard]] Machine machine() const;

 private:
  std::vector<std::vector<int>> of_device_;
};

}  // namespace parsim::hw
