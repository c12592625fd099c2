// The synthetic host's memory: threads that stand for parts of one device share its rate.
#pragma once

#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <span>
#include <vector>

#include "core/profile.hpp"

namespace parsim::hw {

class MemoryContention {
 public:
  /// rates   of the devices, each by itself
  /// rate    of all together
  MemoryContention(std::vector<BytesPerSecond> rates, BytesPerSecond rate);

  /// Returns when something is over that takes these devices so long while nobody else touches
  /// memory. What it touches, it touches evenly; if all together want more than there is, everybody
  /// gets shares by the devices' rates and takes longer (memory_level in core/profile.hpp).
  void spend(std::span<const DeviceId> devices, Seconds alone, Bytes touched);

 private:
  using Clock = std::chrono::steady_clock;
  struct Running {
    double weight = 0, demand = 0;  ///< bytes/s
    double left = 0;                ///< seconds at full speed
    double factor = 1;
  };

  void advance(Clock::time_point now);
  void share();

  std::vector<BytesPerSecond> rates_;
  BytesPerSecond rate_;
  std::mutex lock_;
  std::condition_variable changed_;
  std::list<Running> running_;
  Clock::time_point since_;  ///< when `left` was true
  std::uint64_t changes_ = 0;
};

}  // namespace parsim::hw
