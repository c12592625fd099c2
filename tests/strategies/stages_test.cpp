#include "strategies/stages.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "strategies/pipeline_cut.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/random_plans.hpp"

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
    CHECK(largest == testing::approx(least_load(until, 0, 0)));
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
    CHECK(cut.step == testing::approx(sum + (micro_batches - 1) * slowest));
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

namespace {

/// Passes of a device: its chunk (a, b, ...; a capital for backward) and the micro-batch.
std::string passes_of(std::int32_t device, std::int32_t devices, std::int32_t chunks,
                      std::int32_t micro_batches) {
  std::string text;
  for (const auto [stage, m, direction] :
       device_slots(PipelineSchedule::one_f_one_b, device, devices, chunks, micro_batches)) {
    CHECK(stage % devices == device);
    const char chunk =
        static_cast<char>((direction == Direction::forward ? 'a' : 'A') + stage / devices);
    text += (text.empty() ? "" : " ") + std::string(1, chunk) + std::to_string(m);
  }
  return text;
}

/// When the last slot ends if forward of a stage takes one and backward two, and nothing else takes
/// any time.
int end_of(const std::vector<std::vector<Slot>>& by_device, std::int32_t stages) {
  std::map<Slot, int> end;
  std::vector<std::size_t> next(by_device.size());
  std::vector<int> free(by_device.size());
  const auto all_ran = [&] {
    for (std::size_t d = 0; d < next.size(); ++d) {
      if (next[d] < by_device[d].size()) return false;
    }
    return true;
  };
  while (!all_ran()) {
    bool progress = false;
    for (std::size_t d = 0; d < next.size(); ++d) {
      if (next[d] == by_device[d].size()) continue;
      const Slot slot = by_device[d][next[d]];
      Slot before = slot;  // forward through the stage before, or backward through the one after
      const bool forward = slot.direction == Direction::forward;
      before.stage += forward ? -1 : 1;
      if (!forward && before.stage == stages) before = {slot.stage, slot.micro_batch, {}};
      if (before.stage >= 0 && !end.contains(before)) continue;
      const int start = std::max(free[d], before.stage >= 0 ? end.at(before) : 0);
      free[d] = end[slot] = start + (forward ? 1 : 2);
      ++next[d];
      progress = true;
    }
    REQUIRE(progress);
  }
  return *std::max_element(free.begin(), free.end());
}

}  // namespace

// Micro-batches by twos through chunk a, then chunk b; back through b, then a. Forward passes
// before the first backward one: 2 · 1 + 2 + 1 on the first device, 2 + 1 on the second.
TEST_CASE("stages: two devices with two chunks and four micro-batches, by hand") {
  CHECK(passes_of(0, 2, 2, 4) == "a0 a1 b0 b1 a2 B0 a3 B1 b2 A0 b3 A1 B2 B3 A2 A3");
  CHECK(passes_of(1, 2, 2, 4) == "a0 a1 b0 B0 b1 B1 a2 A0 a3 A1 b2 B2 b3 B3 A2 A3");
}

// Narayanan et al. 2021, figure 4: 4 · 2 + 3 passes on the first device, two less on each later
// one.
TEST_CASE("stages: four devices with two chunks and eight micro-batches, as they are drawn") {
  CHECK(passes_of(0, 4, 2, 8) ==
        "a0 a1 a2 a3 b0 b1 b2 b3 a4 a5 a6 B0 a7 B1 b4 B2 b5 B3 b6 A0 b7 A1 A2 A3 "
        "B4 B5 B6 B7 A4 A5 A6 A7");
  CHECK(passes_of(1, 4, 2, 8) ==
        "a0 a1 a2 a3 b0 b1 b2 b3 a4 B0 a5 B1 a6 B2 a7 B3 b4 A0 b5 A1 b6 A2 b7 A3 "
        "B4 B5 B6 B7 A4 A5 A6 A7");
  CHECK(passes_of(2, 4, 2, 8) ==
        "a0 a1 a2 a3 b0 b1 b2 B0 b3 B1 a4 B2 a5 B3 a6 A0 a7 A1 b4 A2 b5 A3 b6 B4 "
        "b7 B5 B6 B7 A4 A5 A6 A7");
  CHECK(passes_of(3, 4, 2, 8) ==
        "a0 a1 a2 a3 b0 B0 b1 B1 b2 B2 b3 B3 a4 A0 a5 A1 a6 A2 a7 A3 b4 B4 b5 B5 "
        "b6 B6 b7 B7 A4 A5 A6 A7");
}

TEST_CASE("stages: interleaving divides the bubble by the chunks, in the order of the tables") {
  for (std::int32_t devices = 2; devices <= 6; ++devices) {
    for (std::int32_t chunks = 1; chunks <= 4; ++chunks) {
      for (std::int32_t groups = 1; groups <= 4; ++groups) {
        const std::int32_t micro_batches = groups * devices;
        CAPTURE(devices);
        CAPTURE(chunks);
        CAPTURE(micro_batches);
        std::vector<std::vector<Slot>> by_device;
        for (std::int32_t d = 0; d < devices; ++d) {
          by_device.push_back(
              device_slots(PipelineSchedule::one_f_one_b, d, devices, chunks, micro_batches));
          if (chunks > 1) {
            CHECK(by_device.back() ==
                  testing::interleaved_order(d, devices, chunks, micro_batches));
          }
        }
        // Narayanan et al. 2021, section 2.2: (p - 1) / v of t_f + t_b are idle.
        CHECK(end_of(by_device, devices * chunks) == 3 * (micro_batches * chunks + devices - 1));
      }
    }
  }
}

TEST_CASE("stages: the order of all slots has every slot once, after those it needs") {
  for (const PipelineSchedule schedule :
       {PipelineSchedule::gpipe, PipelineSchedule::one_f_one_b, PipelineSchedule::zero_bubble,
        PipelineSchedule::zero_bubble_h2}) {
    for (std::int32_t stages = 1; stages <= 5; ++stages) {
      for (std::int32_t micro_batches = 1; micro_batches <= 7; ++micro_batches) {
        const std::vector<Slot> order = all_slots(schedule, stages, micro_batches);
        const int each = splits_backward(schedule, static_cast<std::size_t>(stages)) ? 3 : 2;
        CHECK(order.size() == static_cast<std::size_t>(each * stages * micro_batches));
        std::set<Slot> done;
        std::vector<std::vector<Slot>> by_stage(static_cast<std::size_t>(stages));
        for (const Slot& slot : order) {
          const auto [s, m, direction] = slot;
          const bool forward = direction == Direction::forward;
          if (forward && s > 0) CHECK(done.contains({s - 1, m, Direction::forward}));
          if (!forward) CHECK(done.contains({s, m, Direction::forward}));
          if (direction == Direction::weights) CHECK(done.contains({s, m, Direction::backward}));
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
