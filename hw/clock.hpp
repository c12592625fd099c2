// The time that threads of the host sleep and measure by: the wall clock's, or virtual time, in
// which only sleeping takes time, so that what they measure is exact on any machine, however busy.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "core/units.hpp"

namespace parsim::hw {

enum class ClockKind {
  wall,
  virtual_time,  ///< stands still until all threads block, then jumps to the next wake-up
};

/// One run() at a time. In virtual time its threads may block in functions of this clock only.
class Clock {
 public:
  /// Whole nanoseconds: differences are exact, and sums do not depend on their order.
  using Time = std::chrono::nanoseconds;

  /// 0 until it is set. As large as what the kernel waits on: libstdc++ wakes those who wait for a
  /// smaller one whenever one near it changes, and who has run for nothing begins late.
  using Flag = std::atomic<int>;

  explicit Clock(ClockKind kind) : kind_(kind) {}

  /// Runs each body on a thread of its own and returns when all have returned. They must not throw.
  /// Throws std::system_error if a thread cannot be started; then no body has run.
  ///
  /// prepare   called on every thread, by body, before time begins; must not throw
  void run(const std::vector<std::function<void()>>& bodies,
           const std::function<void(std::size_t body)>& prepare = {});

  /// Since run() has started all threads.
  [[nodiscard]] Time now();
  void sleep_for(Seconds duration);
  /// Sleeps until `end`, which update() may change meanwhile.
  void sleep_until(const Time& end);
  /// Changes the ends that other threads sleep until; none reads them during `change`.
  void update(const std::function<void(Time now)>& change);

  /// Returns when another thread has set the flag; what that thread wrote before is visible.
  void wait(const Flag& flag);
  void set(Flag& flag);

 private:
  static constexpr Time never = Time::max();

  [[nodiscard]] Time read() const;
  void block(std::unique_lock<std::mutex>& lock, Time until);
  void jump_if_all_block();
  void wake_all();

  ClockKind kind_;
  std::chrono::steady_clock::time_point start_;
  std::mutex mutex_;  ///< of what follows, and of the ends of sleep
  std::condition_variable woken_;
  Time now_{};  ///< in virtual time, like all below
  std::size_t threads_ = 0, blocked_ = 0;
  Time next_ = never;  ///< earliest end of those blocked
  std::uint64_t wake_ups_ = 0;
};

}  // namespace parsim::hw
