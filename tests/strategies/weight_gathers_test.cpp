#include "strategies/weight_gathers.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <set>

namespace parsim {
namespace {

using Needs = std::vector<std::vector<std::size_t>>;

TEST_CASE("weight gathers: the next unit goes out when the last but one is done") {
  std::vector<std::size_t> there;
  const std::vector<WeightGather> out = weight_gathers({{0}, {0}, {1}, {1}, {2}, {2}, {3}}, there);
  CHECK(out == std::vector<WeightGather>{{0, 0, {}}, {0, 1, {}}, {2, 2, {0}}, {4, 3, {1}}});
  CHECK(there == std::vector<std::size_t>{2, 3});
  // On the way back the last two are still there.
  const std::vector<WeightGather> back = weight_gathers({{3}, {2}, {1}, {0}}, there);
  CHECK(back == std::vector<WeightGather>{{1, 1, {3}}, {2, 0, {2}}});
}

TEST_CASE("weight gathers: every turn has its units, and no more than two or its own") {
  CHECK(rc::check([] {
    Needs needs(*rc::gen::inRange<std::size_t>(1, 14));
    for (auto& wanted : needs) {
      const auto units = *rc::gen::container<std::set<std::size_t>>(
          *rc::gen::inRange<std::size_t>(0, 4), rc::gen::inRange<std::size_t>(0, 8));
      wanted.assign(units.begin(), units.end());
    }
    std::vector<std::size_t> there{6, 7};
    std::set<std::size_t> memory(there.begin(), there.end());
    const std::vector<WeightGather> gathers = weight_gathers(needs, there);
    std::size_t next = 0, most = 2;
    for (const auto& wanted : needs) most = std::max(most, wanted.size());
    for (std::size_t turn = 0; turn < needs.size(); ++turn) {
      for (; next < gathers.size() && gathers[next].turn == turn; ++next) {
        for (const std::size_t unit : gathers[next].instead) RC_ASSERT(memory.erase(unit) == 1U);
        RC_ASSERT(memory.insert(gathers[next].unit).second);
        RC_ASSERT(memory.size() <= most);
        // As early as this: before, something was in the way, or it was its turn after another.
        const bool first = turn == 0 || gathers[next - (next > 0)].turn == turn;
        const auto& before = needs[turn - (turn > 0)];
        const bool freed = std::any_of(
            gathers[next].instead.begin(), gathers[next].instead.end(), [&](std::size_t unit) {
              return std::find(before.begin(), before.end(), unit) != before.end();
            });
        RC_ASSERT((first || freed));
      }
      for (const std::size_t unit : needs[turn]) RC_ASSERT(memory.contains(unit));
    }
    RC_ASSERT(next == gathers.size());
    RC_ASSERT(memory == std::set<std::size_t>(there.begin(), there.end()));
  }));
}

}  // namespace
}  // namespace parsim
