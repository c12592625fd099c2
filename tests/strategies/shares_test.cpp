#include "strategies/shares.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "core/plan.hpp"
#include "lowering/lower.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "strategies/price.hpp"
#include "tests/support/approx.hpp"
#include "topologies/topologies.hpp"

using namespace parsim;
using namespace parsim::strategies;

namespace {

using Sizes = std::vector<std::int64_t>;

/// Time until the slowest device ends.
double end_of(const Sizes& sizes, const std::vector<std::size_t>& kinds, const ShareTime& time) {
  double end = 0;
  for (std::size_t p = 0; p < sizes.size(); ++p) {
    if (sizes[p] > 0) end = std::max(end, time(kinds[p], sizes[p]).count());
  }
  return end;
}

/// The least end over all ways to share, one device after another.
/// smallest   units of a device
double least_end(std::int64_t extent, const std::vector<std::size_t>& kinds, const ShareTime& time,
                 Sizes& sizes, std::int64_t smallest = 0) {
  if (sizes.size() + 1 == kinds.size()) {
    if (extent < smallest) return 1e300;
    sizes.push_back(extent);
    const double end = end_of(sizes, kinds, time);
    sizes.pop_back();
    return end;
  }
  double least = 1e300;
  for (std::int64_t n = smallest; n <= extent; ++n) {
    sizes.push_back(n);
    least = std::min(least, least_end(extent - n, kinds, time, sizes, smallest));
    sizes.pop_back();
  }
  return least;
}

}  // namespace

// Moreno-Alvarez et al. 2021, released code, function heterogeneousPartition: the vectors it
// prints.
TEST_CASE("shares: the released rule gives the released code's vectors") {
  const std::vector<double> cifar{.70, .25, .05}, mnist{.40, .40, .20}, even{.34, .33, .33},
      pair{.45, .45, .10};
  CHECK(released_split(60, cifar) == Sizes{42, 15, 3});
  CHECK(released_split(120, cifar) == Sizes{84, 30, 6});
  CHECK(released_split(240, cifar) == Sizes{168, 60, 12});
  CHECK(released_split(480, cifar) == Sizes{336, 120, 24});
  CHECK(released_split(60, mnist) == Sizes{24, 24, 12});
  CHECK(released_split(240, mnist) == Sizes{96, 96, 48});
  CHECK(released_split(60, even) == Sizes{22, 19, 19});  // floors 20, 19, 19: the rest to the first
  CHECK(released_split(240, even) == Sizes{82, 79, 79});
  CHECK(released_split(60, pair) == Sizes{27, 27, 6});
  CHECK(released_split(240, pair) == Sizes{108, 108, 24});
}

TEST_CASE("shares: where the released code never ends, the smallest share stays zero") {
  CHECK(released_split(1, {1.0, 0.0}) == Sizes{1, 0});
  CHECK(released_split(4, {0.5, 0.5, 0.0}) == Sizes{2, 2, 0});
  CHECK(released_split(4, {0.6, 0.4, 0.0}) == Sizes{2, 1, 1});  // floors 2, 1, 0 leave one
}

TEST_CASE("shares: the largest remainder treats nearly equal devices alike") {
  CHECK(proportional_split(60, {.34, .33, .33}) == Sizes{20, 20, 20});
  CHECK(proportional_split(60, {.70, .25, .05}) == Sizes{42, 15, 3});
  CHECK(proportional_split(240, {.40, .40, .20}) == Sizes{96, 96, 48});
}

TEST_CASE("shares: linear times are shared by speed") {
  const ShareTime time = [](std::size_t kind, std::int64_t units) {
    const std::vector<double> speed{.70, .25, .05};
    return Seconds{static_cast<double>(units) / speed[kind]};
  };
  CHECK(finish_together(60, {0, 1, 2}, time) == Sizes{42, 15, 3});
  CHECK(finish_together(480, {2, 0, 1}, time) == Sizes{24, 336, 120});
  CHECK(finish_together(7, {0}, time) == Sizes{7});
  CHECK(finish_together(0, {0, 1}, time) == Sizes{0, 0});
}

// t = 10 + n and t = n: alike speeds for the whole (110 and 100), but the first ends late. By hand:
// 45 and 55 end at 55 both.
TEST_CASE("shares: a fixed cost moves units to the device without one") {
  const ShareTime time = [](std::size_t kind, std::int64_t units) {
    return Seconds{(kind == 0 ? 10.0 : 0.0) + static_cast<double>(units)};
  };
  CHECK(finish_together(100, {0, 1}, time) == Sizes{45, 55});
  CHECK(finish_together(8, {0, 1}, time) == Sizes{0, 8});  // its launch alone is too long
}

// Two that take n and one that takes 10 + n. By speed of all 7 (7, 7 and 17) the slow one gets a
// unit and ends at 11; without it, 3 and 4 end at 4.
TEST_CASE("shares: of equal devices the first has the unit more") {
  const ShareTime time = [](std::size_t kind, std::int64_t units) {
    return Seconds{(kind == 0 ? 0.0 : 10.0) + static_cast<double>(units)};
  };
  CHECK(finish_together(7, {0, 0, 1}, time) == Sizes{4, 3, 0});
  CHECK(finish_together(7, {1, 0, 0}, time) == Sizes{0, 4, 3});
  CHECK(finish_together(7, {0, 1, 0}, time) == Sizes{4, 0, 3});
}

TEST_CASE("shares: no split ends earlier, on random times that never fall") {
  std::mt19937_64 random(7);
  int refined = 0, raised = 0;
  for (int round = 0; round < 300; ++round) {
    const std::size_t kind_count = 1 + random() % 3, devices = 2 + random() % 3;
    const auto extent = static_cast<std::int64_t>(1 + random() % 12);
    std::vector<std::vector<double>> table(kind_count, {0.0});
    for (auto& row : table) {
      for (std::int64_t n = 1; n <= extent; ++n) {
        row.push_back(row.back() + static_cast<double>(random() % 5));
      }
    }
    std::vector<std::size_t> kinds;
    for (std::size_t d = 0; d < devices; ++d) kinds.push_back(random() % kind_count);
    const ShareTime time = [&](std::size_t kind, std::int64_t n) {
      return Seconds{table[kind][static_cast<std::size_t>(n)]};
    };
    CAPTURE(round);
    const Sizes sizes = finish_together(extent, kinds, time);
    CHECK(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}) == extent);
    Sizes none;
    CHECK(end_of(sizes, kinds, time) == testing::approx(least_end(extent, kinds, time, none)));
    refined += sizes == even_split(extent, devices) ? 0 : 1;
    if (extent < std::ssize(kinds)) continue;
    const Sizes fed = finish_together(extent, kinds, time, 1);
    CHECK(std::accumulate(fed.begin(), fed.end(), std::int64_t{0}) == extent);
    CHECK(*std::min_element(fed.begin(), fed.end()) >= 1);
    CHECK(end_of(fed, kinds, time) == testing::approx(least_end(extent, kinds, time, none, 1)));
    raised += *std::min_element(sizes.begin(), sizes.end()) == 0 ? 1 : 0;
  }
  CHECK(refined > 100);
  CHECK(raised > 5);
}

// Whale (Jia et al., USENIX ATC 2022): data parallelism of ResNet-50 on 8 V100 and 8 P100 gains 1.3
// to 1.4 over equal batches when the batch is shared by speed.
TEST_CASE("data: shares by speed gain 1.3 to 1.4 on 8 V100 and 8 P100, as in Whale") {
  const Network network = networks::load_network("resnet50", {}, "test");
  const Cluster cluster = topologies::load_cluster(
      "star:16,device=v100-sxm2*8+p100-sxm2*8,rate=12GB/s,latency=2us", "test");
  const auto cost = sim::make_constant_efficiency(cluster);
  const auto simulator = sim::make_simgrid_executor(cluster, *cost, {});
  StrategyInput input{network, cluster, *cost};
  input.batch = 32 * 16;
  input.simulate = simulation(network, cluster, *cost, *simulator);
  const Price equal = simulated_price(input, plan_data(input));
  input.shares = ShareRule::proportional;
  const Plan plan = plan_data(input);
  const Price by_speed = simulated_price(input, plan);
  const double gain = equal.step / by_speed.step;
  MESSAGE("equal ", equal.step.count(), " s, by speed ", by_speed.step.count(), " s, gain ", gain,
          ", ", plan.notes[0]);
  CHECK(gain >= 1.3);
  CHECK(gain <= 1.4);
}
