#include "sim/slowdowns.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <cmath>
#include <set>

#include "tests/sim/small_dags.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/notation.hpp"

namespace parsim::sim {
namespace {

using namespace testing;
using namespace std::chrono_literals;

constexpr auto ever = Seconds{std::numeric_limits<double>::infinity()};

TEST_CASE("straggler: a change is put back unless the next period begins") {
  const Cluster cluster = star({1e9, 8e9}, 1us);
  const Slowdowns slowdowns{
      {}, {SlowPeriods(), SlowPeriods({{0s, 1s, 2}, {1s, 3s, 8}, {4s, ever, 4}})}};
  const auto at = [](Seconds date, double rate) {
    return RateChange{date, LinkId{1}, BytesPerSecond{rate}};
  };
  CHECK(rate_changes(cluster, slowdowns) ==
        std::vector{at(0s, 4e9), at(1s, 1e9), at(3s, 8e9), at(4s, 2e9)});
}

Timeline run_perturbed(const Cluster& cluster, const ExecDag& dag, const Slowdowns& slowdowns,
                       Engine engine, Fidelity fidelity) {
  const SimpleCost cost(cluster);
  SimOptions options{fidelity, CollectiveCost::ideal};
  options.engine = engine;
  options.slowdowns = slowdowns;
  return make_simulator(cluster, cost, options)->run(dag);
}

TEST_CASE(
    "straggler: a kernel and a transfer across a change, by hand in every engine and fidelity") {
  // A kernel of 4 ms on gpu0, half as fast from 1 to 3 ms: 5 ms. Meanwhile 4 MB from gpu1 to gpu2,
  // 4 ms after 2 us of latency; gpu2's cable is half as fast at the same time: 5.002 ms.
  const Cluster cluster = star({1e9, 1e9, 1e9}, 1us);
  ExecDag dag = bare_dag();
  const OpId kernel = add_transfer(dag, 0, 0, 2'000'000'000);  // within a device: 2 x 2 GB / 1 TB/s
  const OpId transfer = add_transfer(dag, 1, 2, 4'000'000);
  add_delay(dag, 2, 10ms);
  const SlowPeriods slow({{1ms, 3ms, 2}});
  for (const Engine engine : {Engine::simgrid, Engine::fast}) {
    for (const Fidelity fidelity : {Fidelity::hops, Fidelity::p2p, Fidelity::macro}) {
      const Timeline timeline = run_perturbed(
          cluster, dag, {{slow, SlowPeriods(), slow}, {SlowPeriods(), SlowPeriods(), slow}}, engine,
          fidelity);
      CHECK(length(timeline, kernel).count() == testing::approx(5e-3).epsilon(1e-12));
      CHECK(length(timeline, transfer).count() == testing::approx(5.002e-3).epsilon(1e-6));
      CHECK(makespan(timeline) == 10ms);  // a delay does nothing, so nothing can slow it down
    }
  }
  const Timeline formula = run_perturbed(cluster, dag, {{slow, SlowPeriods(), slow}, {}},
                                         Engine::fast, Fidelity::analytic);
  CHECK(length(formula, kernel).count() == testing::approx(5e-3).epsilon(1e-12));
}

TEST_CASE("straggler: a transfer that starts while its link is slow gets faster when that ends") {
  // 4 MB after 2 us: a tenth of them until 4.002 ms, the rest at full speed: 7.602 ms.
  const Cluster cluster = star({1e9, 1e9}, 1us);
  ExecDag dag = bare_dag();
  add_transfer(dag, 0, 1, 4'000'000);
  for (const Engine engine : {Engine::simgrid, Engine::fast}) {
    const Timeline timeline =
        run_perturbed(cluster, dag, {{}, {SlowPeriods({{0s, 4002us, 10}}), SlowPeriods()}}, engine,
                      Fidelity::hops);
    CHECK(makespan(timeline).count() == testing::approx(7.602e-3).epsilon(1e-6));
  }
}

TEST_CASE("straggler: a link that is slow from the start to the end is a slower link") {
  const Cluster cluster = star({2e9, 2e9, 2e9}, 1us), slower = star({2e9, 0.5e9, 2e9}, 1us);
  ExecDag dag = bare_dag();
  add_transfer(dag, 0, 1, 5'000'000);
  add_transfer(dag, 1, 2, 3'000'000, {}, Stream::pipeline);
  add_collective(dag, CollectiveKind::all_reduce, devices(0, 3), {4'000'000, 0, 0});
  for (const Engine engine : {Engine::simgrid, Engine::fast}) {
    const Timeline slow = run_perturbed(
        cluster, dag, {{}, {SlowPeriods(), SlowPeriods({{0s, ever, 4}}), SlowPeriods()}}, engine,
        Fidelity::hops);
    CHECK(difference(makespan(slow),
                     makespan(run_perturbed(slower, dag, {}, engine, Fidelity::hops))) < 1e-9);
    CHECK(run_perturbed(cluster, dag,
                        {{}, {SlowPeriods(), SlowPeriods({{0s, ever, 1}}), SlowPeriods()}}, engine,
                        Fidelity::hops) == run_perturbed(cluster, dag, {}, engine, Fidelity::hops));
  }
}

TEST_CASE("straggler: a message of a ring waits for the one whose content it passes on, by hand") {
  // Four devices add up 40 MB at 10 GB/s: each sends six messages of 10 MB, 1 ms each. gpu0's cable
  // is a third as fast for the first 3 ms, which delays what it sends and receives first to 3 ms:
  //   from gpu0 and gpu3   3 4 5 6 7 8 ms
  //   from gpu1            1 4 5 6 7 8 ms   the second passes on what gpu0 sent
  //   from gpu2            1 2 5 6 7 8 ms   the third what gpu1 sent
  // gpu2's cable is a fifth as fast from 7 ms on, in both directions: the last messages to it and
  // from it end at 12 ms. Had they not waited, all of its messages would have ended by then.
  const Cluster cluster = star(std::vector<double>(4, 10e9), 0s);
  ExecDag dag = bare_dag();
  const OpId sum = add_collective(dag, CollectiveKind::all_reduce, devices(0, 4), {40'000'000});
  const SlowPeriods none, early({{0s, 3ms, 3}}), late({{7ms, 50ms, 5}});
  for (const Engine engine : {Engine::simgrid, Engine::fast}) {
    const auto time = [&](const std::vector<SlowPeriods>& links) {
      return length(run_perturbed(cluster, dag, {{}, links}, engine, Fidelity::p2p), sum).count();
    };
    CHECK(time({none, none, none, none}) == testing::approx(6e-3).epsilon(1e-6));
    CHECK(time({early, none, none, none}) == testing::approx(8e-3).epsilon(1e-6));
    CHECK(time({none, none, late, none}) == testing::approx(6e-3).epsilon(1e-6));
    CHECK(time({early, none, late, none}) == testing::approx(12e-3).epsilon(1e-6));
  }
}

TEST_CASE(
    "straggler: a measured collective whose link is slow for a while, by hand in both engines") {
  // 10 MB each way over 10 GB/s take 1 ms after 50 us (1 MB: 0.1 of 0.15 ms on the links). gpu0's
  // cable is half as fast from 0.3 to 0.7 ms.
  const Cluster cluster = star({10e9, 10e9}, 0s);
  ExecDag dag = bare_dag();
  const OpId sum = add_collective(dag, CollectiveKind::all_reduce, devices(0, 2), {10'000'000, 0});
  const SimpleCost cost(cluster);
  struct Row {
    Seconds table, expected;
  };
  const Row rows[] = {{1050us, 1250us},  // as fast as the links: 0.2 ms of work are lost
                      {2050us, 2050us},  // a library that takes twice as long does not notice
                      {1150us, 1250us},  // or only a part of it
                      {550us, 750us}};   // faster than the links: flows of half the bytes
  for (const Row& row : rows) {
    SimOptions options;
    options.collectives = CollectiveCost::measured;
    options.tables = {
        {CollectiveKind::all_reduce, 2, {{1'000'000, 150us}, {10'000'000, row.table}}, "test"}};
    for (const Engine engine : {Engine::simgrid, Engine::fast}) {
      for (const Fidelity fidelity : {Fidelity::hops, Fidelity::macro}) {
        options.engine = engine;
        options.fidelity = fidelity;
        options.slowdowns = {};
        CHECK(length(make_simulator(cluster, cost, options)->run(dag), sum).count() ==
              testing::approx(row.table.count()).epsilon(1e-6));
        options.slowdowns = {{}, {SlowPeriods({{300us, 700us, 2}}), SlowPeriods()}};
        CHECK(length(make_simulator(cluster, cost, options)->run(dag), sum).count() ==
              testing::approx(row.expected.count()).epsilon(1e-6));
      }
    }
  }
}

SimOptions jittered(double relative, std::uint64_t seed, Engine engine = Engine::simgrid) {
  SimOptions options;
  options.engine = engine;
  options.slowdowns.jitter = {relative, seed};
  return options;
}

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
    CHECK(std::sqrt(squares / count - mean * mean) == testing::approx(relative).epsilon(0.05));
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
    CHECK(makespan(timeline).count() == testing::approx(expected.count()).epsilon(1e-12));
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

TEST_CASE("slowed: equal devices that are as slow as each other are alike, others are not") {
  const Cluster cluster = testing::star_of(4, "1 GB/s", "1 us");
  const auto cost = make_constant_efficiency(cluster);
  REQUIRE(cost->alike(DeviceId{0}) == cost->alike(DeviceId{3}));
  const auto slowed = make_slowed(*cost, {1.0, 1.5, 1.0, 2.0});
  CHECK(slowed->alike(DeviceId{0}) == slowed->alike(DeviceId{2}));
  const std::set<std::int32_t> classes{slowed->alike(DeviceId{0}), slowed->alike(DeviceId{1}),
                                       slowed->alike(DeviceId{3})};
  CHECK(classes.size() == 3);
}

}  // namespace
}  // namespace parsim::sim
