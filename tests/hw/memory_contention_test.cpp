#include "hw/memory_contention.hpp"

#include <doctest/doctest.h>

#include <array>

namespace parsim::testing {

using namespace std::chrono_literals;

TEST_CASE("memory contention: kernels that want more than the bandwidth take longer, by hand") {
  hw::Clock clock(hw::ClockKind::virtual_time);
  hw::MemoryContention memory({{2e9}, {2e9}, {1e9}}, {3e9}, clock);
  const std::array one{DeviceId{0}}, other{DeviceId{1}}, third{DeviceId{2}};
  for (int again = 0; again < 2; ++again) {
    std::vector<hw::Clock::Time> ends(3);
    clock.run({[&] {
                 memory.sleep(one, 3s, Bytes{6'000'000'000});
                 ends[0] = clock.now();
               },
               [&] {
                 clock.sleep_for(1s);
                 memory.sleep(other, 1s, Bytes{2'000'000'000});
                 ends[1] = clock.now();
               },
               [&] {
                 memory.sleep(third, 2s, {});  // touches nothing
                 ends[2] = clock.now();
               }});
    // Alone for a second; then 1.5 GB/s of 2 for each until the second has its 2 GB, after 4/3 s;
    // then the first has a second left.
    CHECK(ends == std::vector<hw::Clock::Time>{3'333'333'333ns, 2'333'333'333ns, 2s});
  }
}

TEST_CASE(
    "memory contention: kernels that want less than their share are not slowed down, by hand") {
  hw::Clock clock(hw::ClockKind::virtual_time);
  hw::MemoryContention memory({{2e9}, {2e9}}, {3e9}, clock);
  const std::array one{DeviceId{0}}, other{DeviceId{1}};
  std::vector<hw::Clock::Time> ends(2);
  clock.run({[&] {
               memory.sleep(one, 2s, Bytes{1'000'000'000});
               ends[0] = clock.now();
             },
             [&] {
               memory.sleep(other, 4s, Bytes{8'000'000'000});
               ends[1] = clock.now();
             }});
  // 0.5 GB/s of 3: the other wants 2 and has 2.5.
  CHECK(ends == std::vector<hw::Clock::Time>{2s, 4s});
}

}  // namespace parsim::testing
