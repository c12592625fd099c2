#include "tests/support/restlessness.hpp"

#include <algorithm>
#include <chrono>
#include <thread>

namespace parsim::testing {

double restlessness() {
  using Clock = std::chrono::steady_clock;
  const auto naps = [] {
    for (int i = 0; i < 30; ++i) std::this_thread::sleep_for(std::chrono::microseconds(2500));
  };
  double least = 1e9, most = 0;
  for (int round = 0; round < 5; ++round) {
    const Clock::time_point start = Clock::now();
    std::thread other(naps);
    naps();
    other.join();
    const double taken = std::chrono::duration<double>(Clock::now() - start).count();
    least = std::min(least, taken);
    most = std::max(most, taken);
  }
  return most / least - 1;
}

}  // namespace parsim::testing
