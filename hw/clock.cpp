#include "hw/clock.hpp"

#include <algorithm>
#include <latch>
#include <thread>

#include "core/errors.hpp"

namespace parsim::hw {

namespace {
using Wall = std::chrono::steady_clock;
}  // namespace

void Clock::run(const std::vector<std::function<void()>>& bodies,
                const std::function<void(std::size_t)>& prepare) {
  now_ = {};
  threads_ = bodies.size();
  std::latch ready(std::ssize(bodies) + 1);
  bool complete = false;  // written before the latch opens
  std::vector<std::jthread> threads;
  threads.reserve(bodies.size());
  const auto start = [&](std::size_t b) {
    threads.emplace_back([this, b, &bodies, &prepare, &ready, &complete] {
      if (prepare) prepare(b);
      ready.arrive_and_wait();
      if (!complete) return;
      bodies[b]();
      const std::lock_guard lock(mutex_);
      --threads_;
      jump_if_all_block();
    });
  };
  try {
    for (std::size_t b = 0; b < bodies.size(); ++b) start(b);
  } catch (...) {  // no thread, or no memory for one: those that wait would wait for ever
    ready.count_down(std::ssize(bodies) + 1 - std::ssize(threads));
    throw;
  }
  start_ = Wall::now();
  complete = true;
  ready.arrive_and_wait();
}

Clock::Time Clock::read() const { return kind_ == ClockKind::wall ? Wall::now() - start_ : now_; }

// A mutex would order the threads that lock it, and hide from ThreadSanitizer (tests/hw/tsan) that
// an operation waits for too few others. So by the wall clock now(), wait() and set() lock none.
Clock::Time Clock::now() {
  if (kind_ == ClockKind::wall) return read();
  const std::lock_guard lock(mutex_);
  return read();
}

void Clock::sleep_for(Seconds duration) { sleep_until(now() + std::chrono::round<Time>(duration)); }

void Clock::sleep_until(const Time& end) {
  std::unique_lock lock(mutex_);
  while (read() < end) block(lock, end);
}

void Clock::update(const std::function<void(Time)>& change) {
  const std::lock_guard lock(mutex_);
  change(read());
  wake_all();
}

void Clock::wait(const Flag& flag) {
  if (kind_ == ClockKind::wall) return flag.wait(0, std::memory_order_acquire);
  std::unique_lock lock(mutex_);
  while (flag.load(std::memory_order_acquire) == 0) block(lock, never);
}

void Clock::set(Flag& flag) {
  if (kind_ == ClockKind::virtual_time) {
    return update([&](Time) { flag.store(1, std::memory_order_release); });
  }
  flag.store(1, std::memory_order_release);
  flag.notify_all();
}

/// Returns at `until` or earlier; the caller checks whether what it waits for has happened.
void Clock::block(std::unique_lock<std::mutex>& lock, Time until) {
  if (kind_ == ClockKind::wall) {
    woken_.wait_until(lock, start_ + until);
    return;
  }
  const std::uint64_t seen = wake_ups_;
  next_ = std::min(next_, until);
  ++blocked_;
  jump_if_all_block();
  woken_.wait(lock, [&] { return wake_ups_ != seen; });
}

void Clock::jump_if_all_block() {
  if (kind_ == ClockKind::wall || threads_ == 0 || blocked_ < threads_) return;
  ensure(next_ < never, "not all threads wait for one another");
  now_ = next_;
  wake_all();
}

/// No thread counts as blocked before it has checked again what it waits for: one that may continue
/// but has not been scheduled yet must keep time from jumping.
void Clock::wake_all() {
  blocked_ = 0;
  next_ = never;
  ++wake_ups_;
  woken_.notify_all();
}

}  // namespace parsim::hw
