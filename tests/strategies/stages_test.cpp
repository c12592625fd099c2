#include "strategies/stages.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>

using namespace parsim;

namespace {

/// The least largest load over all cuts of elements `begin`… into the stages from `stage` on.
double least_load(const std::vector<std::vector<double>>& until, std::size_t stage,
                  std::size_t begin) {
  const std::size_t elements = until[0].size() - 1;
  if (stage + 1 == until.size()) return until[stage][elements] - until[stage][begin];
  double least = 1e300;
  for (std::size_t end = begin + 1; end + (until.size() - stage - 1) <= elements; ++end) {
    least = std::min(least, std::max(until[stage][end] - until[stage][begin],
                                     least_load(until, stage + 1, end)));
  }
  return least;
}

}  // namespace

TEST_CASE("stages: no cut of a chain has a smaller largest load") {
  std::mt19937_64 random(3);
  for (int round = 0; round < 200; ++round) {
    const std::size_t stages = 1 + random() % 4, elements = stages + random() % 6;
    std::vector<std::vector<double>> until;
    for (std::size_t s = 0; s < stages; ++s) {
      std::vector<double>& loads = until.emplace_back(1, 0.0);
      for (std::size_t e = 0; e < elements; ++e) {
        loads.push_back(loads.back() + static_cast<double>(random() % 10));
      }
    }
    const std::vector<std::size_t> first = chain_split(until);
    REQUIRE(first.size() == stages);
    CHECK(first[0] == 0);
    double largest = 0;
    for (std::size_t s = 0; s < stages; ++s) {
      const std::size_t end = s + 1 < stages ? first[s + 1] : elements;
      CHECK(first[s] < end);
      largest = std::max(largest, until[s][end] - until[s][first[s]]);
    }
    CHECK(largest == doctest::Approx(least_load(until, 0, 0)));
  }
}

// Loads 4 4 4 4 4 in two stages: 8 | 12 and 12 | 8 are equal; beginning at the third costs 9, at
// the fourth 1. With slack 1/3 16 | 4 would do too and costs nothing.
TEST_CASE("stages: slack buys cheaper cuts") {
  const std::vector<double> until{0, 4, 8, 12, 16, 20}, cost{0, 5, 9, 1, 0};
  using First = std::vector<std::size_t>;
  CHECK(chain_split({until, until}) == First{0, 2});
  CHECK(chain_split({until, until}, cost, 0) == First{0, 3});
  CHECK(chain_split({until, until}, cost, 0.3) == First{0, 3});
  CHECK(chain_split({until, until}, cost, 0.34) == First{0, 4});
}

TEST_CASE("stages: among equal cuts the earlier one") {
  // 2 | 1 1 2 and 2 1 | 1 2 and 2 1 1 | 2: the middle one is best; of 1 1 | 0 1 and 1 1 0 | 1 the
  // first.
  CHECK(chain_split({{0, 2, 3, 4, 6}, {0, 2, 3, 4, 6}}) == std::vector<std::size_t>{0, 2});
  CHECK(chain_split({{0, 1, 2, 2, 3}, {0, 1, 2, 2, 3}}) == std::vector<std::size_t>{0, 1});
}

TEST_CASE("stages: the order of all slots has every slot once, after those it needs") {
  for (const PipelineSchedule schedule : {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b}) {
    for (std::int32_t stages = 1; stages <= 5; ++stages) {
      for (std::int32_t micro_batches = 1; micro_batches <= 7; ++micro_batches) {
        const std::vector<Slot> order = all_slots(schedule, stages, micro_batches);
        CHECK(order.size() == static_cast<std::size_t>(2 * stages * micro_batches));
        std::set<Slot> done;
        std::vector<std::vector<Slot>> by_stage(static_cast<std::size_t>(stages));
        for (const Slot& slot : order) {
          const auto [s, m, direction] = slot;
          const bool forward = direction == Direction::forward;
          if (forward && s > 0) CHECK(done.contains({s - 1, m, Direction::forward}));
          if (!forward) CHECK(done.contains({s, m, Direction::forward}));
          if (!forward && s + 1 < stages) CHECK(done.contains({s + 1, m, Direction::backward}));
          CHECK(done.insert(slot).second);
          by_stage[static_cast<std::size_t>(s)].push_back(slot);
        }
        for (std::int32_t s = 0; s < stages; ++s) {  // each stage's own order is its schedule's
          CHECK(by_stage[static_cast<std::size_t>(s)] ==
                stage_slots(schedule, s, stages, micro_batches));
        }
      }
    }
  }
}
