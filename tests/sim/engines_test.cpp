// The two engines of flows, and the levels of fidelity, against each other.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <string>

#include "lowering/lower.hpp"
#include "tests/sim/small_dags.hpp"
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

/// Up to seven devices on up to three switches, which are attached to one more; rates that make
/// each link a bottleneck of some flow. Neighbours by number may be far apart: rings cross a link
/// several times.
Cluster two_levels() {
  const auto rate = [] { return BytesPerSecond{1e9 * *rc::gen::inRange(1, 40)}; };
  const auto latency = [] { return 1us * *rc::gen::inRange(0, 30); };
  Cluster cluster = star({}, 0s);
  const int nodes = *rc::gen::inRange(1, 4);
  for (int node = 0; node < nodes; ++node) {
    const SwitchId inside{cluster.switches.size()};
    cluster.switches.push_back({"inside" + std::to_string(node), NodeId{0}});
    cluster.links.push_back({"up" + std::to_string(node), Port::of(inside), Port::of(SwitchId{0}),
                             rate(), latency(), -1});
  }
  for (int i = *rc::gen::inRange(1, 8); i > 0; --i) {
    const DeviceId device{cluster.devices.size()};
    const std::string name = std::to_string(device.value);
    cluster.devices.push_back({"gpu" + name, 0, NodeId{0}, cluster.models.front().memory});
    cluster.links.push_back({"link" + name, Port::of(device),
                             Port::of(SwitchId{*rc::gen::inRange(0, nodes) + 1}), rate(), latency(),
                             -1});
  }
  return cluster;
}

/// Kernels, transfers and collectives on all streams, hardly ordered: flows compete.
ExecDag contended_dag(int count) {
  ExecDag dag = bare_dag();
  const int size = *rc::gen::inRange(2, 40);
  for (int i = 0; i < size; ++i) {
    std::vector<OpId> after;
    if (i > 0 && *rc::gen::inRange(0, 3) == 0) after.emplace_back(*rc::gen::inRange(0, i));
    const auto bytes = std::int64_t{2} * *rc::gen::inRange(0, 20'000'000);
    const int a = *rc::gen::inRange(0, count), b = *rc::gen::inRange(0, count);
    switch (*rc::gen::inRange(0, 6)) {
      case 0: {
        const int members = *rc::gen::inRange(1, count - a + 1);
        const auto kind =
            *rc::gen::element(CollectiveKind::all_reduce, CollectiveKind::all_gather,
                              CollectiveKind::reduce_scatter, CollectiveKind::broadcast);
        add_collective(dag, kind, devices(a, members),
                       std::vector<std::int64_t>(static_cast<std::size_t>(members), bytes), after,
                       *rc::gen::element(Stream::gradient, Stream::tensor));
        break;
      }
      case 1:
        add_delay(dag, a, *rc::gen::inRange(0, 3000) * 1us, after);
        break;
      default:
        add_transfer(dag, a, b, bytes, after,
                     *rc::gen::element(Stream::gradient, Stream::tensor, Stream::pipeline,
                                       Stream::pipeline_back));
    }
  }
  return dag;
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
    CHECK(length(timeline, op).count() == doctest::Approx(6e-3).epsilon(1e-9));
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
