// The two engines of flows, and the levels of fidelity, against each other.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <string>

#include "lowering/lower.hpp"
#include "tests/sim/random_dags.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/list_scheduler.hpp"
#include "tests/support/on_all_devices.hpp"
#include "tests/support/world.hpp"

namespace parsim::sim {
namespace {

using namespace testing;
using namespace std::chrono_literals;

Timeline run_with(Engine engine, const Cluster& cluster, const ExecDag& dag,
                  Fidelity fidelity = Fidelity::hops, const Slowdowns& slowdowns = {}) {
  const SimpleCost cost(cluster);
  SimOptions options{fidelity, CollectiveCost::ideal};
  options.engine = engine;
  options.slowdowns = slowdowns;
  return make_simulator(cluster, cost, options)->run(dag);
}

/// Largest difference of two dates, relative to the later makespan. SimGrid merges events closer
/// than 1 ns, so a nanosecond for every operation before is not counted.
double disagreement(const Timeline& a, const Timeline& b) {
  const double allowed = 1e-9 * static_cast<double>(a.spans.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.spans.size(); ++i) {
    for (const Seconds difference :
         {a.spans[i].start - b.spans[i].start, a.spans[i].end - b.spans[i].end}) {
      largest = std::max(largest, std::abs(difference.count()) - allowed);
    }
  }
  return largest <= 0 ? 0 : largest / std::max(makespan(a), makespan(b)).count();
}

TEST_CASE("engines: fast and SimGrid agree where random flows compete") {
  CHECK(rc::check([] {
    const Cluster cluster = two_levels();
    const ExecDag dag = contended_dag(static_cast<int>(cluster.devices.size()));
    const Fidelity fidelity =
        *rc::gen::element(Fidelity::hops, Fidelity::p2p, Fidelity::macro, Fidelity::analytic);
    const Timeline fast = run_with(Engine::fast, cluster, dag, fidelity);
    const Timeline simgrid = run_with(Engine::simgrid, cluster, dag, fidelity);
    RC_ASSERT(fast.hop_bytes == simgrid.hop_bytes);
    RC_ASSERT(disagreement(fast, simgrid) <= 1e-6);
    RC_ASSERT(run_with(Engine::fast, cluster, dag, fidelity) == fast);  // to the bit
  }));
}

/// For each device or link, now and then, up to three slow periods within some milliseconds.
std::vector<SlowPeriods> slow_periods(std::size_t count) {
  std::vector<SlowPeriods> list;
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<SlowPeriod> periods;
    Seconds date{};
    for (int k = *rc::gen::inRange(-3, 4); k > 0; --k) {
      const Seconds from = date + *rc::gen::inRange(0, 3000) * 1us;
      date = from + *rc::gen::inRange(1, 5000) * 1us;
      periods.push_back({from, date, 0.5 * *rc::gen::inRange(2, 20)});
    }
    list.emplace_back(periods);
  }
  return list;
}

TEST_CASE("engines: fast and SimGrid agree while devices and links are slow for a while") {
  CHECK(rc::check([] {
    const Cluster cluster = two_levels();
    const ExecDag dag = contended_dag(static_cast<int>(cluster.devices.size()));
    const Slowdowns slowdowns{slow_periods(cluster.devices.size()),
                              slow_periods(cluster.links.size())};
    const Fidelity fidelity = *rc::gen::element(Fidelity::hops, Fidelity::p2p, Fidelity::macro);
    const Timeline fast = run_with(Engine::fast, cluster, dag, fidelity, slowdowns);
    const Timeline simgrid = run_with(Engine::simgrid, cluster, dag, fidelity, slowdowns);
    RC_ASSERT(fast.hop_bytes == simgrid.hop_bytes);
    RC_ASSERT(disagreement(fast, simgrid) <= 1e-6);
    RC_ASSERT(run_with(Engine::fast, cluster, dag, fidelity, slowdowns) == fast);  // to the bit
  }));
}

TEST_CASE("engines: SimGrid unless it would take more than two seconds") {
  const auto chose_fast = [](int members, int count) {
    const Cluster cluster = star(std::vector<double>(static_cast<std::size_t>(members), 1e9), 1us);
    ExecDag dag = bare_dag();
    for (int i = 0; i < count; ++i) {
      add_collective(dag, CollectiveKind::all_reduce, devices(0, members), {1'000'000});
    }
    const SimpleCost cost(cluster);
    SimOptions options{Fidelity::hops, CollectiveCost::ideal};
    options.engine = Engine::automatic;
    options.merge = false;
    const Timeline timeline = make_simulator(cluster, cost, options)->run(dag);
    options.engine = timeline.chose_fast_engine ? Engine::fast : Engine::simgrid;
    Timeline asked = make_simulator(cluster, cost, options)->run(dag);
    asked.chose_fast_engine = timeline.chose_fast_engine;
    CHECK(asked == timeline);  // bytes are counted once
    return timeline.chose_fast_engine;
  };
  // 5 us for each flow and 50 ns for each flow under way when one ends:
  //   32,000 flows, 8 at a time: 0.16 s + 32,000 x 4.5 x 50 ns = 0.17 s
  //   48,000 flows, 4,000 at a time: 0.24 s + 48,000 x 2,000 x 50 ns = 5 s
  CHECK_FALSE(chose_fast(8, 4000));
  CHECK(chose_fast(4000, 12));
}

TEST_CASE("macro: a ring that crosses a link twice needs twice the time, with both engines") {
  // Devices 0 and 2 on one switch, 1 and 3 on the other, 10 GB/s each: the ring goes up and down
  // each uplink twice. All-gather of 4 x 10 MB: 30 MB over each hop, 60 MB over an uplink: 6 ms.
  Cluster cluster = star({}, 0s);
  for (int node = 0; node < 2; ++node) {
    cluster.switches.push_back({"inside" + std::to_string(node), NodeId{0}});
    cluster.links.push_back({"up", Port::of(SwitchId{node + 1}), Port::of(SwitchId{0}), {10e9}});
  }
  for (int i = 0; i < 4; ++i) {
    cluster.devices.push_back({"gpu" + std::to_string(i), 0, NodeId{0}, Bytes{1}});
    cluster.links.push_back({"link", Port::of(DeviceId{i}), Port::of(SwitchId{i % 2 + 1}), {10e9}});
  }
  ExecDag dag = bare_dag();
  const OpId op = add_collective(dag, CollectiveKind::all_gather, devices(0, 4),
                                 {10'000'000, 10'000'000, 10'000'000, 10'000'000});
  for (const Engine engine : {Engine::simgrid, Engine::fast}) {
    const Timeline timeline = run_with(engine, cluster, dag, Fidelity::macro);
    CHECK(length(timeline, op).count() == testing::approx(6e-3).epsilon(1e-9));
  }
}

TEST_CASE("fidelity: without competitors, hops, macro and the formula take the same time") {
  // Flows of one collective that share a link and wait differently do compete, so all links are
  // alike. Message by message it is the same where no link is crossed twice: collectives_test.cpp.
  CHECK(rc::check([] {
    Cluster cluster = two_levels();
    for (Link& link : cluster.links) link = {link.name, link.a, link.b, {10e9}, 1us, -1};
    const auto count = static_cast<int>(cluster.devices.size());
    const auto kind = *rc::gen::element(CollectiveKind::all_reduce, CollectiveKind::all_gather,
                                        CollectiveKind::reduce_scatter, CollectiveKind::broadcast);
    ExecDag dag = bare_dag();
    const std::int64_t bytes = 2 * *rc::gen::inRange(0, 5'000'000);
    add_collective(dag, kind, devices(0, count),
                   std::vector<std::int64_t>(static_cast<std::size_t>(count), bytes));
    const Timeline hops = run_with(Engine::fast, cluster, dag, Fidelity::hops);
    RC_ASSERT(disagreement(run_with(Engine::fast, cluster, dag, Fidelity::macro), hops) <= 1e-6);
    RC_ASSERT(disagreement(run_with(Engine::fast, cluster, dag, Fidelity::analytic), hops) <= 1e-6);
  }));
}

TEST_CASE("fidelity: the formula is the list scheduler, and contention never hastens anything") {
  CHECK(rc::check([] {
    const Cluster cluster = two_levels();
    const ExecDag dag = contended_dag(static_cast<int>(cluster.devices.size()));
    const Timeline formula = run_with(Engine::fast, cluster, dag, Fidelity::analytic);
    const SimpleCost cost(cluster);
    const std::vector<Span> expected = list_schedule(dag, durations_alone(dag, cost));
    const Timeline hops = run_with(Engine::fast, cluster, dag, Fidelity::hops);
    RC_ASSERT(formula.hop_bytes == hops.hop_bytes);
    for (std::size_t i = 0; i < dag.size(); ++i) {
      const double end = formula.spans[i].end.count();
      RC_ASSERT(std::abs(end - expected[i].end.count()) <= 1e-9 * end);
      RC_ASSERT(end <= hops.spans[i].end.count() * (1 + 1e-9));
    }
  }));
}

/// The disagreement on a strategy's plan, with NCCL's collectives.
double disagreement(const World& world, const strategies::Strategy& strategy) {
  const ExecDag dag =
      lowering::lower(world.network, world.cluster, plan_on_all_devices(strategy, world.input(64)));
  SimOptions options{Fidelity::hops, CollectiveCost::nccl};
  const Timeline simgrid = make_simulator(world.cluster, *world.cost, options)->run(dag);
  options.engine = Engine::fast;
  const Timeline fast = make_simulator(world.cluster, *world.cost, options)->run(dag);
  CHECK(fast.hop_bytes == simgrid.hop_bytes);
  return disagreement(fast, simgrid);
}

TEST_CASE("engines: fast and SimGrid agree on a step of every strategy") {
  const World world("lenet5", "nodes:2x2,device=p100-sxm2*2+v100-sxm2*2,intra=20GB/s,inter=5GB/s");
  for (const strategies::Strategy& strategy : strategies::all()) {
    if (strategy.name == "best") continue;  // a plan of the others, after a search
    CAPTURE(strategy.name);
    CHECK(disagreement(world, strategy) <= 1e-6);
  }
}

TEST_CASE("engines: fast and SimGrid agree on steps in real machines") {
  for (const char* machines : {"dgx-v100", "mixed-p100-v100", "p100-4x4"}) {
    const World world("alexnet", machines);
    for (const char* name : {"data", "model-even", "owt", "pipeline"}) {
      CAPTURE(machines);
      CAPTURE(name);
      CHECK(disagreement(world, strategies::strategy(name, "test")) <= 1e-6);
    }
  }
}

}  // namespace
}  // namespace parsim::sim
