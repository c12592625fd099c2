#include "hw/memory_contention.hpp"

#include <algorithm>
#include <thread>
#include <utility>

namespace parsim::hw {

MemoryContention::MemoryContention(std::vector<BytesPerSecond> rates, BytesPerSecond rate)
    : rates_(std::move(rates)), rate_(rate) {}

void MemoryContention::advance(Clock::time_point now) {
  const Seconds passed = now - since_;
  for (Running& kernel : running_) kernel.left -= passed.count() / kernel.factor;
  since_ = now;
}

void MemoryContention::share() {
  std::vector<MemoryClaim> claims;
  for (const Running& kernel : running_) claims.push_back({kernel.weight, kernel.demand});
  const double level = memory_level(claims, rate_.value);
  for (Running& kernel : running_) {
    kernel.factor = std::max(1.0, kernel.demand / (kernel.weight * level));
  }
  ++changes_;
  changed_.notify_all();
}

void MemoryContention::spend(std::span<const DeviceId> devices, Seconds alone, Bytes touched) {
  if (alone <= Seconds{} || touched.value <= 0) {
    std::this_thread::sleep_for(alone);
    return;
  }
  double rate = 0;
  for (const DeviceId device : devices) rate += rates_.at(device.index()).value;
  std::unique_lock lock(lock_);
  advance(Clock::now());
  const auto mine =
      running_.insert(running_.end(), {rate, (touched / alone).value, alone.count(), 1});
  share();
  while (mine->left > 0) {
    const std::uint64_t seen = changes_;
    const auto end = since_ + std::chrono::duration_cast<Clock::duration>(
                                  Seconds{std::max(1e-9, mine->left * mine->factor)});
    changed_.wait_until(lock, end, [&] { return changes_ != seen; });
    advance(Clock::now());
  }
  running_.erase(mine);
  share();
}

}  // namespace parsim::hw
