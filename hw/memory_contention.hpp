// Memory contention on the synthetic host: devices that are parts of one host share its bandwidth.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "core/ids.hpp"
#include "core/running_work.hpp"
#include "hw/clock.hpp"

namespace parsim::hw {

class MemoryContention {
 public:
  /// device_rates   memory bandwidth of each device while the others are idle
  /// host_rate      of all devices together
  /// clock          of the threads that sleep; must outlive this
  MemoryContention(std::vector<BytesPerSecond> device_rates, BytesPerSecond host_rate, Clock& clock)
      : device_rates_(std::move(device_rates)), memory_{host_rate.value}, clock_(clock) {}

  /// Sleeps as long as a kernel or message takes under memory-bandwidth contention.
  ///
  /// devices    that run it: their bandwidth is its weight
  /// alone      its duration on an otherwise idle host
  /// touched    bytes, spread evenly over its duration; none: nothing slows it down
  ///
  /// Where all that runs wants more than host_rate, it is divided max-min fairly by weight
  /// (core/running_work.hpp), anew whenever a kernel or message begins or ends.
  void sleep(std::span<const DeviceId> devices, Seconds alone, Bytes touched);

 private:
  struct Sleeper : RunningWork {
    Clock::Time wake_up{};
  };
  void share(Clock::Time now);

  std::vector<BytesPerSecond> device_rates_;
  SharedMemory memory_;  ///< guarded by the clock's update(), like its users
  Clock& clock_;
};

}  // namespace parsim::hw
