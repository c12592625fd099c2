#include "lowering/zero_schedule.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <set>

namespace parsim::lowering {
namespace {

TEST_CASE("zero schedule: the next unit is gathered when the last but one is done") {
  std::vector<std::size_t> resident;
  const std::vector<WeightGather> out =
      weight_gathers({{0}, {0}, {1}, {1}, {2}, {2}, {3}}, {1, 1, 1, 1}, resident);
  CHECK(out == std::vector<WeightGather>{{0, 0, {}}, {0, 1, {}}, {2, 2, {0}}, {4, 3, {1}}});
  CHECK(resident == std::vector<std::size_t>{2, 3});
  // The backward pass begins with the last unit resident.
  CHECK(freed_after(true, resident) == std::vector<std::size_t>{2});
  const std::vector<WeightGather> back =
      weight_gathers({{3}, {2}, {1}, {0}}, {1, 1, 1, 1}, resident);
  CHECK(back == std::vector<WeightGather>{{0, 2, {}}, {1, 1, {3}}, {2, 0, {2}}});
  CHECK(freed_after(false, resident) == std::vector<std::size_t>{1, 0});
  CHECK(resident.empty());
  // Late ones are issued when their use begins.
  resident = {3};
  const std::vector<WeightGather> late =
      weight_gathers({{3}, {2}, {1}, {0}}, {1, 1, 1, 1}, resident, true);
  CHECK(late == std::vector<WeightGather>{{1, 2, {}}, {2, 1, {3}}, {3, 0, {2}}});
}

TEST_CASE("zero schedule: a unit that is used again within 10^9 elements stays, by hand") {
  const UnitsByVisit tied{{4}, {0}, {1}, {2}, {3}, {0}};
  std::vector<std::size_t> resident;
  CHECK(weight_gathers(tied, {9, 500'000'000, 499'999'999, 1, 1}, resident) ==
        std::vector<WeightGather>{{0, 4, {}}, {0, 0, {}}, {1, 1, {}}, {2, 2, {4}}, {3, 3, {1}}});
  CHECK(resident == std::vector<std::size_t>{2, 3, 0});
  resident.clear();
  CHECK(weight_gathers(tied, {9, 500'000'000, 500'000'000, 1, 1}, resident) ==
        std::vector<WeightGather>{
            {0, 4, {}}, {0, 0, {}}, {1, 1, {4}}, {2, 2, {0}}, {3, 3, {1}}, {4, 0, {2}}});
  CHECK(resident == std::vector<std::size_t>{3, 0});
  // However far apart, if the pass begins and ends with it: FSDP's root.
  resident.clear();
  CHECK(weight_gathers({{0}, {1}, {2}, {3}, {0}, {}}, {9, 500'000'000, 500'000'000, 1}, resident) ==
        std::vector<WeightGather>{{0, 0, {}}, {0, 1, {}}, {1, 2, {}}, {2, 3, {1}}});
  // A block of three units is computed again, then backward: each is gathered once.
  resident.clear();
  CHECK(weight_gathers({{0}, {1}, {2}, {2}, {1}, {0}, {3}}, {1, 1, 1, 1}, resident) ==
        std::vector<WeightGather>{{0, 0, {}}, {0, 1, {}}, {1, 2, {}}, {5, 3, {2, 1}}});
}

TEST_CASE("zero schedule: every visit has its units, and no more than two or its own") {
  CHECK(rc::check([] {
    UnitsByVisit needs(*rc::gen::inRange<std::size_t>(1, 14));
    for (auto& wanted : needs) {
      const auto units = *rc::gen::container<std::set<std::size_t>>(
          *rc::gen::inRange<std::size_t>(0, 4), rc::gen::inRange<std::size_t>(0, 8));
      wanted.assign(units.begin(), units.end());
    }
    std::vector<std::size_t> resident{6, 7};
    std::set<std::size_t> memory(resident.begin(), resident.end());
    const std::vector<WeightGather> gathers =
        weight_gathers(needs, std::vector<std::int64_t>(8, 1), resident);
    std::size_t next = 0, most = 2;
    std::set<std::size_t> once;
    const auto stays = [&](std::size_t unit, std::size_t at) {
      const auto uses = [&](const auto& wanted) {
        return std::find(wanted.begin(), wanted.end(), unit) != wanted.end();
      };
      const auto first = std::find_if(needs.begin(), needs.end(), uses);
      if (first == needs.end() || first - needs.begin() > static_cast<std::ptrdiff_t>(at))
        return false;
      const auto last = std::find_if(needs.rbegin(), needs.rend(), uses);
      return last.base() - 1 != first &&
             last.base() - needs.begin() > static_cast<std::ptrdiff_t>(at);
    };
    for (const auto& wanted : needs) most = std::max(most, wanted.size());
    for (std::size_t visit = 0; visit < needs.size(); ++visit) {
      for (; next < gathers.size() && gathers[next].visit == visit; ++next) {
        for (const std::size_t unit : gathers[next].evicted) RC_ASSERT(memory.erase(unit) == 1U);
        RC_ASSERT(memory.insert(gathers[next].unit).second);
        RC_ASSERT(once.insert(gathers[next].unit).second);  // in a pass
        const auto stay = static_cast<std::size_t>(std::count_if(
            memory.begin(), memory.end(), [&](std::size_t unit) { return stays(unit, visit); }));
        RC_ASSERT(memory.size() <= most + stay);
        // As early as possible: an evicted unit was in use, a unit's use begins, or another gather
        // comes before it.
        const bool first = visit == 0 || gathers[next - (next > 0)].visit == visit;
        const auto& before = needs[visit - (visit > 0)];
        const bool freed = std::any_of(
            gathers[next].evicted.begin(), gathers[next].evicted.end(), [&](std::size_t unit) {
              return std::find(before.begin(), before.end(), unit) != before.end();
            });
        const bool begins =
            std::any_of(needs[visit].begin(), needs[visit].end(), [&](std::size_t unit) {
              return std::find(before.begin(), before.end(), unit) == before.end();
            });
        RC_ASSERT((first || freed || begins));
      }
      for (const std::size_t unit : needs[visit]) RC_ASSERT(memory.contains(unit));
    }
    RC_ASSERT(next == gathers.size());
    RC_ASSERT(memory == std::set<std::size_t>(resident.begin(), resident.end()));
  }));
}

TEST_CASE("zero schedule: gradients wait for the unit before last, unless it is still filled") {
  CHECK(gradient_buffer_reuses({{0}, {0, 1}, {1}, {2}, {3}}) ==
        std::vector<GradientBufferReuse>{{3, 2, 0}, {4, 3, 1}});
  // The first unit gets gradients once more at the end.
  CHECK(gradient_buffer_reuses({{0}, {1}, {2}, {3, 0}}) ==
        std::vector<GradientBufferReuse>{{3, 3, 1}});
  CHECK(most_filled({{0}, {1}, {2}, {3}}, {1, 20, 300, 4000}) == 4300);
  CHECK(most_filled({{0}, {1}, {2}, {3, 0}}, {1, 20, 300, 4000}) == 4301);
}

TEST_CASE("zero schedule: unsharded gradients are of units that began and were not waited for") {
  CHECK(rc::check([] {
    UnitsByVisit filled(*rc::gen::inRange<std::size_t>(1, 12));
    std::vector<std::int64_t> bytes;
    for (std::int64_t unit = 0; unit < 6; ++unit) bytes.push_back(*rc::gen::inRange(1, 100));
    for (auto& units : filled) {
      const auto some = *rc::gen::container<std::set<std::size_t>>(
          *rc::gen::inRange<std::size_t>(0, 3), rc::gen::inRange<std::size_t>(0, 6));
      units.assign(some.begin(), some.end());
    }
    const std::vector<GradientBufferReuse> reuses = gradient_buffer_reuses(filled);
    std::set<std::size_t> whole, begun;
    std::int64_t most = 0;
    for (std::size_t visit = 0; visit < filled.size(); ++visit) {
      for (const std::size_t unit : filled[visit]) {
        if (!begun.insert(unit).second) continue;
        for (const GradientBufferReuse& reuse : reuses) {
          if (reuse.unit != unit) continue;
          RC_ASSERT(reuse.visit == visit);
          RC_ASSERT(whole.erase(reuse.previous) == 1U);
          for (std::size_t later = visit; later < filled.size(); ++later) {
            const auto& units = filled[later];
            RC_ASSERT(std::find(units.begin(), units.end(), reuse.previous) == units.end());
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
}  // namespace parsim::lowering
