// Memory contention on the synthetic host: devices that are parts of one host share its bandwidth.
#pragma once

#include <span>
#include <vector>

#include "core/profile.hpp"
#include "hw/clock.hpp"

namespace parsim::hw {

class MemoryContention {
 public:
  /// device_rates   memory bandwidth of each device while the others are idle
  /// host_rate      of all devices together
  /// clock          of the threads that sleep; must outlive this
  MemoryContention(std::vector<BytesPerSecond> device_rates, BytesPerSecond host_rate,
                   Clock& clock);

  /// Sleeps as long as a kernel or message takes under memory-bandwidth contention.
  ///
  /// devices    that run it: their bandwidth is its weight
  /// alone      its duration on an otherwise idle host
  /// touched    bytes, spread evenly over its duration; none: nothing slows it down
  ///
  /// Where all that runs wants more than host_rate, it is divided max-min fairly by weight
  /// (memory_level in core/profile.hpp), anew whenever a kernel or message begins or ends.
  void sleep(std::span<const DeviceId> devices, Seconds alone, Bytes touched);

 private:
  struct Running {
    double weight = 0, demand = 0;  ///< bytes/s
    Seconds left{};                 ///< at full speed, at since_
    double slowdown = 1;
    Clock::Time end{};
  };

  void advance(Clock::Time now);
  void share();

  std::vector<BytesPerSecond> device_rates_;
  BytesPerSecond host_rate_;
  Clock& clock_;  ///< its update() guards what follows
  std::vector<Running*> running_;
  Clock::Time since_{};
};

}  // namespace parsim::hw
