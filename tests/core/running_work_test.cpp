#include "core/running_work.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>

namespace parsim {
namespace {

using namespace std::chrono_literals;

constexpr auto ever = Seconds{std::numeric_limits<double>::infinity()};

TEST_CASE("running work: by hand, work across a slow period") {
  // Half the speed from 2 to 5.
  const SlowPeriods slow({{2s, 5s, 2}});
  CHECK(slow.end(0s, 2s) == 2s);
  CHECK(slow.end(0s, 4s) == Seconds{5.5});  // 2, then 1.5 until 5, then 0.5
  CHECK(slow.end(3s, 1s) == 5s);
  CHECK(slow.end(4s, 1s) == Seconds{5.5});
  CHECK(slow.end(6s, 1s) == 7s);
  CHECK(slow.work(0s, Seconds{5.5}) == 4s);
  CHECK(slow.work(3s, 4s) == Seconds{0.5});
  // Two periods that touch, and one without end; in any order.
  const SlowPeriods more({{4s, ever, 4}, {1s, 2s, 2}, {2s, 3s, 4}});
  CHECK(more.end(0s, 3s) == 5s);  // 1 until 1, 1.5 until 2, 1.75 until 3, 2.75 until 4, then 0.25
  CHECK(SlowPeriods({{2s, 5s, 1}}).empty());
}

TEST_CASE("running work: random periods against small steps") {
  CHECK(rc::check([] {
    std::vector<SlowPeriod> periods;
    double date = 0;
    for (int i = *rc::gen::inRange(0, 5); i > 0; --i) {
      const double from = date + *rc::gen::inRange(0, 4);
      date = from + *rc::gen::inRange(1, 5);
      periods.push_back({Seconds{from}, Seconds{date}, 0.5 * *rc::gen::inRange(2, 9)});
    }
    const SlowPeriods slow(periods);
    const double start = *rc::gen::inRange(0, 20), alone = 0.25 * *rc::gen::inRange(0, 60);
    // Every 16th of a second what its middle makes of it.
    constexpr double step = 1.0 / 16;
    double at = start, left = alone;
    while (true) {
      double factor = 1;
      for (const SlowPeriod& period : periods) {
        if (period.from.count() < at + step / 2 && at + step / 2 < period.to.count()) {
          factor = period.factor;
        }
      }
      if (left <= step / factor) {
        at += left * factor;
        break;
      }
      left -= step / factor;
      at += step;
    }
    const Seconds end = slow.end(Seconds{start}, Seconds{alone});
    RC_ASSERT(std::abs(end.count() - at) <= 1e-9 * std::max(1.0, at));
    RC_ASSERT(std::abs(slow.work(Seconds{start}, end).count() - alone) <= 1e-9);
  }));
}

TEST_CASE("running work: memory's level uses the rate up and no claim gets more than its demand") {
  CHECK(rc::check([] {
    std::vector<MemoryClaim> claims;
    double wanted = 0;
    for (int i = *rc::gen::inRange(0, 8); i > 0; --i) {
      claims.push_back({0.25 * *rc::gen::inRange(1, 20), 0.125 * *rc::gen::inRange(0, 40)});
      wanted += claims.back().demand;
    }
    const double rate = 0.5 * *rc::gen::inRange(1, 40);
    const double level = memory_level(claims, rate);
    if (wanted <= rate) {
      RC_ASSERT(std::isinf(level));
      return;
    }
    double used = 0;
    for (const MemoryClaim& claim : claims) used += std::min(claim.demand, claim.weight * level);
    RC_ASSERT(std::abs(used - rate) <= 1e-9 * rate);
  }));
}

TEST_CASE("running work: two that share a memory, one of them slow for a while, by hand") {
  // Each wants 2 B/s of 3; the first runs at half its speed from 4 to 6.
  const SlowPeriods slow({{4s, 6s, 2}});
  SharedMemory memory{3};
  RunningWork one{.left = 6s, .weight = 1, .demand = 2, .memory = &memory, .periods = &slow};
  RunningWork other{.left = 3s, .weight = 1, .demand = 2, .memory = &memory};
  CHECK(one.end() == 7s);  // 4 by 4, 1 by 6
  memory.users = {&one, &other};
  memory.share();
  CHECK(one.update(0s));
  CHECK(other.update(0s));
  CHECK(other.factor == 4.0 / 3);
  CHECK(other.end() == 4s);
  CHECK(one.end() == 9s);  // 3 by 4, 0.75 by 6, 2.25 at 4/3
  std::erase(memory.users, &other);
  memory.share();
  CHECK(one.update(4s));
  CHECK_FALSE(one.update(4s));
  CHECK(one.left == 3s);
  CHECK(one.end() == 8s);  // 1 by 6, then 2
}

}  // namespace
}  // namespace parsim
