#include "lowering/split_states.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <set>

namespace parsim {
namespace {

TEST_CASE("split states: the next unit goes out when the last but one is done") {
  std::vector<std::size_t> there;
  const std::vector<WeightGather> out = weight_gathers({{0}, {0}, {1}, {1}, {2}, {2}, {3}}, there);
  CHECK(out == std::vector<WeightGather>{{0, 0, {}}, {0, 1, {}}, {2, 2, {0}}, {4, 3, {1}}});
  CHECK(there == std::vector<std::size_t>{2, 3});
  // On the way back the last two are still there.
  const std::vector<WeightGather> back = weight_gathers({{3}, {2}, {1}, {0}}, there);
  CHECK(back == std::vector<WeightGather>{{1, 1, {3}}, {2, 0, {2}}});
}

TEST_CASE("split states: every turn has its units, and no more than two or its own") {
  CHECK(rc::check([] {
    UnitsByTurn needs(*rc::gen::inRange<std::size_t>(1, 14));
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

TEST_CASE("split states: gradients wait for the unit before last, unless it is still filled") {
  CHECK(gradient_rooms({{0}, {0, 1}, {1}, {2}, {3}}) ==
        std::vector<GradientRoom>{{3, 2, 0}, {4, 3, 1}});
  // The first unit gets gradients once more at the end.
  CHECK(gradient_rooms({{0}, {1}, {2}, {3, 0}}) == std::vector<GradientRoom>{{3, 3, 1}});
  CHECK(most_filled({{0}, {1}, {2}, {3}}, {1, 20, 300, 4000}) == 4300);
  CHECK(most_filled({{0}, {1}, {2}, {3, 0}}, {1, 20, 300, 4000}) == 4301);
}

TEST_CASE("split states: what is whole is what has begun and nobody has waited for") {
  CHECK(rc::check([] {
    UnitsByTurn filled(*rc::gen::inRange<std::size_t>(1, 12));
    std::vector<std::int64_t> bytes;
    for (std::int64_t unit = 0; unit < 6; ++unit) bytes.push_back(*rc::gen::inRange(1, 100));
    for (auto& units : filled) {
      const auto some = *rc::gen::container<std::set<std::size_t>>(
          *rc::gen::inRange<std::size_t>(0, 3), rc::gen::inRange<std::size_t>(0, 6));
      units.assign(some.begin(), some.end());
    }
    const std::vector<GradientRoom> rooms = gradient_rooms(filled);
    std::set<std::size_t> whole, begun;
    std::int64_t most = 0;
    for (std::size_t turn = 0; turn < filled.size(); ++turn) {
      for (const std::size_t unit : filled[turn]) {
        if (!begun.insert(unit).second) continue;
        for (const GradientRoom& room : rooms) {
          if (room.unit != unit) continue;
          RC_ASSERT(room.turn == turn);
          RC_ASSERT(whole.erase(room.instead) == 1U);
          for (std::size_t later = turn; later < filled.size(); ++later) {
            const auto& units = filled[later];
            RC_ASSERT(std::find(units.begin(), units.end(), room.instead) == units.end());
          }
        }
        whole.insert(unit);
        std::int64_t sum = 0;
        for (const std::size_t one : whole) sum += bytes[one];
        most = std::max(most, sum);
      }
    }
    RC_ASSERT(most_filled(filled, bytes) == most);
  }));
}

}  // namespace
}  // namespace parsim
