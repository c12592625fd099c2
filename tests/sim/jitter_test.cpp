// Steps whose kernels vary, and stragglers.
#include "sim/jitter.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "tests/sim/small_dags.hpp"

namespace parsim {
namespace {

using namespace testing;
using namespace std::chrono_literals;

SimOptions jittered(double relative, std::uint64_t seed, Engine engine = Engine::simgrid) {
  SimOptions options;
  options.engine = engine;
  options.jitter = {relative, seed};
  return options;
}

}  // namespace

TEST_CASE("jitter: factors have mean 1 and the deviation asked for, and none without jitter") {
  constexpr int count = 20'000;
  for (const double relative : {0.02, 0.3}) {
    double sum = 0, squares = 0;
    for (int i = 0; i < count; ++i) {
      const double factor = jitter_factor({relative, 7}, OpId{i});
      REQUIRE(factor > 0);
      sum += factor;
      squares += factor * factor;
    }
    const double mean = sum / count;
    // Four standard errors of a mean.
    CHECK(std::abs(mean - 1) < 4 * relative / std::sqrt(count));
    CHECK(std::sqrt(squares / count - mean * mean) == doctest::Approx(relative).epsilon(0.05));
  }
  CHECK(jitter_factor({0, 7}, OpId{3}) == 1);
  CHECK(jitter_factor({0.1, 7}, OpId{3}) == jitter_factor({0.1, 7}, OpId{3}));
  CHECK(jitter_factor({0.1, 7}, OpId{3}) != jitter_factor({0.1, 8}, OpId{3}));
  CHECK(jitter_factor({0.1, 7}, OpId{3}) != jitter_factor({0.1, 7}, OpId{4}));
}

TEST_CASE("jitter: a chain takes the sum of its kernels' times by their factors, in both engines") {
  const Cluster cluster = star({1e9, 1e9}, 1us);
  const SimpleCost cost(cluster);
  ExecDag dag = bare_dag();
  Seconds expected{};
  std::vector<OpId> last;
  for (int i = 0; i < 10; ++i) {
    last = {add_delay(dag, i % 2, 3ms, last)};
    expected += 3ms * jitter_factor({0.2, 5}, OpId{i});
  }
  for (const Engine engine : {Engine::simgrid, Engine::fast}) {
    const Timeline timeline = make_simulator(cluster, cost, jittered(0.2, 5, engine))->run(dag);
    CHECK(makespan(timeline).count() == doctest::Approx(expected.count()).epsilon(1e-12));
  }
}

TEST_CASE("jitter: messages keep their time") {
  const Cluster cluster = star({1e9, 1e9}, 1us);
  const SimpleCost cost(cluster);
  ExecDag dag = bare_dag();
  add_transfer(dag, 0, 1, 1'000'000);
  const Seconds plain = makespan(make_simulator(cluster, cost, {})->run(dag));
  CHECK(makespan(make_simulator(cluster, cost, jittered(0.5, 3))->run(dag)) == plain);
}

TEST_CASE("jitter: waiting for the slowest of many takes longer than the mean") {
  // The mean of the maximum of n variables is above their mean: why a spread is worth showing.
  const Cluster cluster = star(std::vector<double>(8, 1e9), 1us);
  const SimpleCost cost(cluster);
  ExecDag dag = bare_dag();
  for (int i = 0; i < 8; ++i) add_delay(dag, i, 10ms);
  Seconds sum{};
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    sum += makespan(make_simulator(cluster, cost, jittered(0.1, seed, Engine::fast))->run(dag));
  CHECK(sum / 20 > 10.5ms);
  CHECK(sum / 20 < 13ms);
}

TEST_CASE("slowed: a straggler's own work takes so many times as long, and nothing else does") {
  const Cluster cluster = star({1e9, 1e9}, 1us);
  const SimpleCost cost(cluster);
  const auto slowed = make_slowed(cost, {1.0, 1.5});
  const Bytes touched{1'000'000};
  CHECK(slowed->memory(DeviceId{0}, touched).time == cost.memory(DeviceId{0}, touched).time);
  CHECK(slowed->memory(DeviceId{1}, touched).time == 1.5 * cost.memory(DeviceId{1}, touched).time);
  const std::vector<DeviceId> both = devices(0, 2);
  CHECK(slowed->collective(CollectiveKind::all_reduce, both, touched) ==
        cost.collective(CollectiveKind::all_reduce, both, touched));
  CHECK(slowed->transfer(DeviceId{0}, DeviceId{1}, touched) ==
        cost.transfer(DeviceId{0}, DeviceId{1}, touched));
  CHECK(slowed->summary() == cost.summary() + "; stragglers: 1 of 2 devices");
}

}  // namespace parsim
