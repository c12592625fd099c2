#include "sim/straggler.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <cmath>

#include "tests/sim/small_dags.hpp"

namespace parsim {
namespace {

using namespace testing;
using namespace std::chrono_literals;

constexpr auto ever = Seconds{std::numeric_limits<double>::infinity()};

TEST_CASE("straggler: by hand, work across a slow period") {
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

TEST_CASE("straggler: random periods against small steps") {
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
      CHECK(length(timeline, kernel).count() == doctest::Approx(5e-3).epsilon(1e-12));
      CHECK(length(timeline, transfer).count() == doctest::Approx(5.002e-3).epsilon(1e-6));
      CHECK(makespan(timeline) == 10ms);  // a delay does nothing, so nothing can slow it down
    }
  }
  const Timeline formula = run_perturbed(cluster, dag, {{slow, SlowPeriods(), slow}, {}},
                                         Engine::fast, Fidelity::analytic);
  CHECK(length(formula, kernel).count() == doctest::Approx(5e-3).epsilon(1e-12));
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
    CHECK(makespan(timeline).count() == doctest::Approx(7.602e-3).epsilon(1e-6));
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
              doctest::Approx(row.table.count()).epsilon(1e-6));
        options.slowdowns = {{}, {SlowPeriods({{300us, 700us, 2}}), SlowPeriods()}};
        CHECK(length(make_simulator(cluster, cost, options)->run(dag), sum).count() ==
              doctest::Approx(row.expected.count()).epsilon(1e-6));
      }
    }
  }
}

}  // namespace
}  // namespace parsim
