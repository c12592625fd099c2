#include "hw/clock.hpp"

#include <doctest/doctest.h>

namespace parsim::testing {

using namespace std::chrono_literals;

TEST_CASE("clock: in virtual time only sleeping takes time, and threads sleep side by side") {
  hw::Clock clock(hw::ClockKind::virtual_time);
  for (int again = 0; again < 2; ++again) {  // each run begins at 0
    std::vector<hw::Clock::Time> ends(3);
    volatile double sum = 0;
    clock.run({[&] {
                 for (int hour = 0; hour < 3; ++hour) clock.sleep_for(1h);
                 ends[0] = clock.now();
               },
               [&] {
                 clock.sleep_for(90min);
                 for (int i = 0; i < 1'000'000; ++i) sum = sum + i;
                 ends[1] = clock.now();
               },
               [&] {
                 clock.sleep_for(0s);
                 ends[2] = clock.now();
               }});
    CHECK(ends == std::vector<hw::Clock::Time>{3h, 90min, 0s});
  }
}

TEST_CASE("clock: a thread that waits for a flag continues when another thread sets it") {
  for (const hw::ClockKind kind : {hw::ClockKind::wall, hw::ClockKind::virtual_time}) {
    hw::Clock clock(kind);
    hw::Clock::Flag first = 0, second = 0;
    std::vector<hw::Clock::Time> seen(3);
    clock.run({[&] {
                 clock.wait(second);
                 seen[0] = clock.now();
               },
               [&] {
                 clock.wait(first);
                 seen[1] = clock.now();
                 clock.sleep_for(2ms);
                 clock.set(second);
               },
               [&] {
                 clock.sleep_for(1ms);
                 clock.set(first);
                 seen[2] = clock.now();  // and ends while the others wait
               }});
    if (kind == hw::ClockKind::virtual_time) {
      CHECK(seen == std::vector<hw::Clock::Time>{3ms, 1ms, 1ms});
    } else {
      CHECK(seen[0] >= 3ms);
      CHECK(seen[1] >= 1ms);
    }
  }
}

TEST_CASE("clock: a sleeper's end moves when another thread moves it") {
  for (const hw::ClockKind kind : {hw::ClockKind::wall, hw::ClockKind::virtual_time}) {
    hw::Clock clock(kind);
    hw::Clock::Time end = 1h;  // by the wall clock the test would notice
    hw::Clock::Time woken{};
    clock.run({[&] {
                 clock.sleep_until(end);
                 woken = clock.now();
               },
               [&] {
                 clock.sleep_for(1ms);
                 clock.update([&](hw::Clock::Time now) { end = now + 2ms; });
               }});
    if (kind == hw::ClockKind::virtual_time) CHECK(woken == 3ms);
    CHECK(woken >= 3ms);
  }
}

}  // namespace parsim::testing
