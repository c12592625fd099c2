#include "strategies/stages.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>

#include "strategies/pipeline_cut.hpp"

using namespace parsim;
using namespace parsim::strategies;

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

namespace {

/// The least step over all cuts, by the closed form.
double least_step(const ChainCosts& costs, std::int32_t micro_batches, std::size_t stage,
                  std::size_t begin, double sum, double slowest) {
  const std::size_t stages = costs.until.size(), layers = costs.until[0].size() - 1;
  double least = 1e300;
  const bool last = stage + 1 == stages;
  for (std::size_t end = last ? layers : begin + 1; end + (stages - stage - 1) <= layers; ++end) {
    const double load = costs.until[stage][end] - costs.until[stage][begin];
    const double handed = stage == 0 ? 0 : costs.hand_over[stage][begin];
    const double all = sum + load + 2 * handed, worst = std::max({slowest, load, handed});
    least = std::min(least, last ? all + (micro_batches - 1) * worst
                                 : least_step(costs, micro_batches, stage + 1, end, all, worst));
  }
  return least;
}

}  // namespace

TEST_CASE("stages: no cut of a pipeline is much faster by the closed form") {
  std::mt19937_64 random(5);
  for (int round = 0; round < 400; ++round) {
    const std::size_t stages = 1 + random() % 4, layers = stages + random() % 6;
    ChainCosts costs;
    for (std::size_t s = 0; s < stages; ++s) {
      std::vector<double>& loads = costs.until.emplace_back(1, 0.0);
      std::vector<double>& handed = costs.hand_over.emplace_back();
      for (std::size_t l = 0; l < layers; ++l) {
        loads.push_back(loads.back() + static_cast<double>(random() % 10));
        handed.push_back(static_cast<double>(random() % (1 + random() % 20)));
      }
    }
    const auto micro_batches = static_cast<std::int32_t>(1 + random() % 12);
    const PipelineCut cut = pipeline_cut(costs, micro_batches);
    REQUIRE(cut.first.size() == stages);
    double sum = 0, slowest = 0;
    for (std::size_t s = 0; s < stages; ++s) {
      const std::size_t end = s + 1 < stages ? cut.first[s + 1] : layers;
      REQUIRE(cut.first[s] < end);
      const double load = costs.until[s][end] - costs.until[s][cut.first[s]];
      const double handed = s == 0 ? 0 : costs.hand_over[s][cut.first[s]];
      sum += load + 2 * handed;
      slowest = std::max({slowest, load, handed});
    }
    CHECK(cut.step == doctest::Approx(sum + (micro_batches - 1) * slowest));
    const double least = least_step(costs, micro_batches, 0, 0, 0, 0);
    CHECK(cut.step >= least * (1 - 1e-12));
    CHECK(cut.step <= 1.05 * least + 1e-12);
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
