#include "hw/memory_contention.hpp"

#include <algorithm>
#include <utility>

namespace parsim::hw {

void MemoryContention::share(Clock::Time now) {
  // Kernels that begin at one time do so in any order: sums must not depend on it.
  std::sort(memory_.users.begin(), memory_.users.end(),
            [](const RunningWork* a, const RunningWork* b) {
              return std::pair(a->weight, a->demand) < std::pair(b->weight, b->demand);
            });
  memory_.share();
  for (RunningWork* user : memory_.users) {
    auto& sleeper = static_cast<Sleeper&>(*user);
    // One that is due has ended, its thread is about to remove it.
    if (sleeper.wake_up <= now || !sleeper.update(now)) continue;
    sleeper.wake_up = std::chrono::round<Clock::Time>(sleeper.end());
  }
}

void MemoryContention::sleep(std::span<const DeviceId> devices, Seconds alone, Bytes touched) {
  if (alone <= Seconds{} || touched.value <= 0) return clock_.sleep_for(alone);
  Sleeper sleeper;
  for (const DeviceId device : devices) {
    sleeper.weight += device_rates_.at(device.index()).value;
  }
  sleeper.left = alone;
  sleeper.demand = (touched / alone).value;
  sleeper.memory = &memory_;
  clock_.update([&](Clock::Time now) {
    sleeper.since = now;
    sleeper.wake_up = std::chrono::round<Clock::Time>(sleeper.end());
    memory_.users.push_back(&sleeper);
    try {
      share(now);
    } catch (...) {  // no memory: others must not find a sleeper that is gone
      std::erase(memory_.users, &sleeper);
      throw;
    }
  });
  clock_.sleep_until(sleeper.wake_up);
  clock_.update([&](Clock::Time now) {
    std::erase(memory_.users, &sleeper);
    share(now);
  });
}

}  // namespace parsim::hw
