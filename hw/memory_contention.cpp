#include "hw/memory_contention.hpp"

#include <algorithm>
#include <utility>

namespace parsim::hw {

MemoryContention::MemoryContention(std::vector<BytesPerSecond> device_rates,
                                   BytesPerSecond host_rate, Clock& clock)
    : device_rates_(std::move(device_rates)), host_rate_(host_rate), clock_(clock) {}

void MemoryContention::advance(Clock::Time now) {
  for (Running* kernel : running_) kernel->left -= Seconds{now - since_} / kernel->slowdown;
  since_ = now;
}

void MemoryContention::share() {
  std::vector<MemoryClaim> claims;
  for (const Running* kernel : running_) claims.push_back({kernel->weight, kernel->demand});
  // Kernels that begin at one time do so in any order: sums must not depend on it.
  std::sort(claims.begin(), claims.end(), [](const MemoryClaim& a, const MemoryClaim& b) {
    return std::pair(a.weight, a.demand) < std::pair(b.weight, b.demand);
  });
  const double level = memory_level(claims, host_rate_.value);
  for (Running* kernel : running_) {
    if (kernel->end <= since_) continue;  // it has ended, its thread is about to remove it
    kernel->slowdown = std::max(1.0, kernel->demand / (kernel->weight * level));
    kernel->end = since_ + std::chrono::round<Clock::Time>(kernel->left * kernel->slowdown);
  }
}

void MemoryContention::sleep(std::span<const DeviceId> devices, Seconds alone, Bytes touched) {
  if (alone <= Seconds{} || touched.value <= 0) return clock_.sleep_for(alone);
  double rate = 0;
  for (const DeviceId device : devices) rate += device_rates_.at(device.index()).value;
  Running kernel{rate, (touched / alone).value, alone, 1, Clock::Time::max()};
  clock_.update([&](Clock::Time now) {
    advance(now);
    running_.push_back(&kernel);
    share();
  });
  clock_.sleep_until(kernel.end);
  clock_.update([&](Clock::Time now) {
    advance(now);
    std::erase(running_, &kernel);
    share();
  });
}

}  // namespace parsim::hw
