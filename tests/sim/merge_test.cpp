// Equal ranks that are simulated once, against every rank simulated.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <string>

#include "lowering/lower.hpp"
#include "tests/sim/small_dags.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/on_all_devices.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/world.hpp"

namespace parsim::sim {
namespace {

using namespace testing;
using namespace std::chrono_literals;

/// Largest difference of two dates beyond `slack`, relative to the step.
double apart(const Timeline& a, const Timeline& b, double slack) {
  REQUIRE(a.spans.size() == b.spans.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.spans.size(); ++i) {
    for (const Seconds difference :
         {a.spans[i].start - b.spans[i].start, a.spans[i].end - b.spans[i].end}) {
      largest = std::max(largest, std::abs(difference.count()) - slack);
    }
  }
  return largest <= 0 ? 0 : largest / makespan(b).count();
}

struct Pair {
  Timeline merged, all;
};
Pair both(const Cluster& cluster, const ExecDag& dag, const CostModel& cost, SimOptions options) {
  Pair pair;
  pair.merged = make_simulator(cluster, cost, options)->run(dag);
  options.merge = false;
  pair.all = make_simulator(cluster, cost, options)->run(dag);
  CHECK(pair.all.merged_operations == 0);
  return pair;
}

/// Whether both say the same; SimGrid merges events closer than a nanosecond.
bool same(const Pair& pair, Engine engine) {
  const double slack =
      engine == Engine::simgrid ? 1e-9 * static_cast<double>(pair.all.spans.size()) : 0;
  return pair.merged.hop_bytes == pair.all.hop_bytes &&
         std::abs(pair.merged.bytes_reduced_in_network - pair.all.bytes_reduced_in_network) <=
             1e-9 * std::abs(pair.all.bytes_reduced_in_network) &&
         apart(pair.merged, pair.all, slack) <= (engine == Engine::simgrid ? 1e-6 : 1e-9);
}

Pair fast_and_same(const Cluster& cluster, const ExecDag& dag, const SimOptions& like = {}) {
  const SimpleCost cost(cluster);
  SimOptions options = like;
  options.engine = Engine::fast;
  Pair pair = both(cluster, dag, cost, options);
  CHECK(same(pair, Engine::fast));
  return pair;
}

/// Every device computes and sends to the next but `distance`, all at once.
ExecDag shifts(int count, int distance, const std::vector<int>& stragglers = {}) {
  ExecDag dag = bare_dag();
  for (int i = 0; i < count; ++i) {
    const bool slow = std::find(stragglers.begin(), stragglers.end(), i) != stragglers.end();
    const OpId kernel = add_delay(dag, i, slow ? 2ms : 1ms);
    add_transfer(dag, i, (i + distance) % count, 10'000'000, {kernel});
  }
  return dag;
}

TEST_CASE("merge: devices of a star that do the same are simulated as one") {
  const Cluster cluster = star(std::vector<double>(8, 10e9), 1us);
  const Pair pair = fast_and_same(cluster, shifts(8, 1));
  CHECK(pair.merged.merged_operations == 14);  // of 8 kernels and 8 transfers one each
  CHECK(makespan(pair.merged).count() == testing::approx(2e-3 + 2e-6).epsilon(1e-12));
}

TEST_CASE("merge: one slow link, or one late device, is simulated for itself") {
  std::vector<double> rates(8, 10e9);
  rates[3] = 5e9;
  // Device 3 sends and receives slowly, which is the same; no other device is affected.
  const Pair link = fast_and_same(star(rates, 1us), shifts(8, 1));
  CHECK(link.merged.merged_operations == 8 + 8 - 3);
  CHECK(makespan(link.merged).count() == testing::approx(3e-3 + 2e-6).epsilon(1e-12));
  const Pair late = fast_and_same(star(std::vector<double>(8, 10e9), 1us), shifts(8, 1, {5}));
  CHECK(late.merged.merged_operations == 8 + 8 - 4);
  CHECK(makespan(late.merged).count() == testing::approx(3e-3 + 2e-6).epsilon(1e-12));
}

TEST_CASE("merge: one far device is simulated for itself, by hand") {
  // Device 3's cable is 100 us longer.
  Cluster cluster = star(std::vector<double>(8, 10e9), 1us);
  cluster.links[3].latency = 101us;
  // Its message and the one to it come later, which is the same; no other does.
  const Pair messages = fast_and_same(cluster, shifts(8, 1));
  CHECK(messages.merged.merged_operations == 8 + 8 - 3);
  CHECK(messages.merged.spans[1].end.count() == testing::approx(2e-3 + 2e-6).epsilon(1e-12));
  CHECK(messages.merged.spans[7].end.count() == testing::approx(2e-3 + 102e-6).epsilon(1e-12));
  CHECK(makespan(messages.merged).count() == testing::approx(2e-3 + 102e-6).epsilon(1e-12));
  // Pairs of neighbours add up 10 MB in two messages of half of it each way; the pair with device 3
  // waits for two longer latencies.
  ExecDag pairs = bare_dag();
  for (int i = 0; i < 8; i += 2) {
    add_collective(pairs, CollectiveKind::all_reduce, devices(i, 2), {10'000'000, 0});
  }
  const Pair sums = fast_and_same(cluster, pairs);
  CHECK(sums.merged.merged_operations == 4 - 2);
  CHECK(sums.merged.spans[0].end.count() == testing::approx(1e-3 + 4e-6).epsilon(1e-12));
  CHECK(sums.merged.spans[1].end.count() == testing::approx(1e-3 + 204e-6).epsilon(1e-12));
}

TEST_CASE("merge: a message that shares its port is not one that has it alone, by hand") {
  // Four times: 100 MB from device 0 to 1 with 50 MB from 0 to 4, and 100 MB from 2 to 3.
  ExecDag dag = bare_dag();
  for (int i = 0; i < 20; i += 5) {
    add_transfer(dag, i, i + 1, 100'000'000);
    add_transfer(dag, i, i + 4, 50'000'000, {}, Stream::gradient);
    add_transfer(dag, i + 2, i + 3, 100'000'000);
  }
  const Pair pair = fast_and_same(star(std::vector<double>(20, 1e9), 0s), dag);
  CHECK(pair.merged.merged_operations == 12 - 3);
  CHECK(pair.merged.spans[0].end.count() == testing::approx(0.15).epsilon(1e-12));
  CHECK(pair.merged.spans[1].end.count() == testing::approx(0.1).epsilon(1e-12));
  CHECK(pair.merged.spans[2].end.count() == testing::approx(0.1).epsilon(1e-12));
}

TEST_CASE("merge: a port as fast as all that it ever carries decides no rate, by hand") {
  // Four times: 100 MB from device 0 to 1 and from 0 to 2 at once, and from 3 to 4. Devices 0 and 3
  // have ports of so many GB/s, all others of 1.
  const auto pair_at = [](double port) {
    std::vector<double> rates(20, 1e9);
    ExecDag dag = bare_dag();
    for (int i = 0; i < 20; i += 5) {
      rates[static_cast<std::size_t>(i)] = rates[static_cast<std::size_t>(i) + 3] = port * 1e9;
      add_transfer(dag, i, i + 1, 100'000'000);
      add_transfer(dag, i, i + 2, 100'000'000, {}, Stream::gradient);
      add_transfer(dag, i + 3, i + 4, 100'000'000);
    }
    return fast_and_same(star(rates, 0s), dag);
  };
  const Pair wide = pair_at(2);
  CHECK(wide.merged.merged_operations == 12 - 1);
  CHECK(makespan(wide.merged).count() == testing::approx(0.1).epsilon(1e-12));
  const Pair narrow = pair_at(1.6);
  CHECK(narrow.merged.merged_operations == 12 - 2);
  CHECK(narrow.merged.spans[0].end.count() == testing::approx(0.125).epsilon(1e-12));
  CHECK(narrow.merged.spans[2].end.count() == testing::approx(0.1).epsilon(1e-12));
}

TEST_CASE("merge: collectives that a library needs longer for are simulated for themselves") {
  // Two pairs gather and two scatter: 10 MB each way, 1 ms on the links. The library waits 50 us
  // (150 us for 1 MB each way), and scatters at half of the links' rate.
  const Cluster cluster = star(std::vector<double>(8, 10e9), 0s);
  ExecDag dag = bare_dag();
  for (int i = 0; i < 8; i += 2) {
    const auto kind = i < 4 ? CollectiveKind::all_gather : CollectiveKind::reduce_scatter;
    add_collective(dag, kind, devices(i, 2), {10'000'000, 10'000'000});
  }
  SimOptions options;
  options.collectives = CollectiveCost::measured;
  options.tables = {
      {CollectiveKind::all_gather, 2, {{2'000'000, 150us}, {20'000'000, 1050us}}, "test"},
      {CollectiveKind::reduce_scatter, 2, {{2'000'000, 150us}, {20'000'000, 2050us}}, "test"}};
  const Pair pair = fast_and_same(cluster, dag, options);
  CHECK(pair.merged.merged_operations == 4 - 2);
  CHECK(pair.merged.spans[1].end.count() == testing::approx(1.05e-3).epsilon(1e-9));
  CHECK(pair.merged.spans[3].end.count() == testing::approx(2.05e-3).epsilon(1e-9));
}

TEST_CASE("merge: what shares a link with equals counts as often as there are equals") {
  // Two machines of four devices, whose uplinks are as fast as one device: across them four
  // messages take four times as long as one.
  Cluster cluster = star({}, 0s);
  for (int machine = 0; machine < 2; ++machine) {
    cluster.switches.push_back({"inside", NodeId{0}});
    cluster.links.push_back({"up", Port::of(SwitchId{machine + 1}), Port::of(SwitchId{0}), {10e9}});
  }
  for (int i = 0; i < 8; ++i) {
    cluster.devices.push_back({"gpu", 0, NodeId{0}, Bytes{1}});
    cluster.links.push_back({"in", Port::of(DeviceId{i}), Port::of(SwitchId{i / 4 + 1}), {10e9}});
  }
  const Pair pair = fast_and_same(cluster, shifts(8, 4));
  CHECK(pair.merged.merged_operations == 14);
  CHECK(makespan(pair.merged).count() == testing::approx(1e-3 + 4e-3).epsilon(1e-12));
}

TEST_CASE("merge: links or devices that slow down are not like those that do not") {
  const Cluster cluster = star(std::vector<double>(6, 10e9), 1us);
  SimOptions options;
  options.slowdowns.links.resize(cluster.links.size());
  options.slowdowns.links[2] = SlowPeriods({{1.5ms, 3ms, 4}});
  const Pair link = fast_and_same(cluster, shifts(6, 1), options);
  CHECK(link.merged.merged_operations == 6 + 6 - 3);
  options.slowdowns.links.clear();
  options.slowdowns.devices.resize(cluster.devices.size());
  ExecDag dag = shifts(6, 1);
  for (int i = 0; i < 6; ++i) add_transfer(dag, i, i, 50'000'000);  // a copy: a kernel
  options.slowdowns.devices[4] = SlowPeriods({{0s, 3ms, 2}});
  const Pair device = fast_and_same(cluster, dag, options);
  CHECK(device.merged.merged_operations > 0);
}

TEST_CASE(
    "merge: a ring of six and two rings of three are alike, though none maps onto the other") {
  // Routers in rings, and a hub that joins them, as in no symmetric cluster: every device sends to
  // both neighbours, and what it knows of the others is the same in either kind of ring.
  Cluster cluster = star({}, 0s);
  const auto link = [&](Port a, Port b, double rate) {
    cluster.links.push_back({"link", a, b, {rate}, 1us, -1});
  };
  for (int i = 0; i < 12; ++i) {
    cluster.devices.push_back({"gpu", 0, NodeId{0}, Bytes{1}});
    cluster.switches.push_back({"router", NodeId{0}});
    link(Port::of(DeviceId{i}), Port::of(SwitchId{i + 1}), 10e9);
    link(Port::of(SwitchId{i + 1}), Port::of(SwitchId{0}), 1e9);
  }
  const std::vector<int> next = {1, 2, 3, 4, 5, 0, 7, 8, 6, 10, 11, 9};
  for (int i = 0; i < 12; ++i) {
    link(Port::of(SwitchId{i + 1}), Port::of(SwitchId{next[std::size_t(i)] + 1}), 5e9);
  }
  ExecDag dag = bare_dag();
  for (int i = 0; i < 12; ++i) {
    add_transfer(dag, i, next[std::size_t(i)], 10'000'000, {}, Stream::tensor);
    add_transfer(dag, next[std::size_t(i)], i, 20'000'000, {}, Stream::gradient);
  }
  const Pair pair = fast_and_same(cluster, dag);
  CHECK(pair.merged.merged_operations == 24 - 2);
  // 20 MB over 5 GB/s; a device's own cable has that for both of its messages.
  CHECK(makespan(pair.merged).count() == testing::approx(4e-3 + 3e-6).epsilon(1e-9));
}

/// Machines of `size` devices on a switch of their own; now and then a link is slower or longer.
Cluster machines(int count, int size) {
  const auto rare = [] { return *rc::gen::inRange(0, 12) == 0; };
  const bool longer = *rc::gen::arbitrary<bool>();
  Cluster cluster = star({}, 0s);
  const auto link = [&](const char* name, Port a, Port b, double rate, Seconds latency) {
    const bool other = rare();
    cluster.links.push_back(
        {name, a, b, {other && !longer ? rate / 3 : rate}, other && longer ? 50us : latency, -1});
  };
  const double up = 1e9 * *rc::gen::inRange(1, 20), in = 1e9 * *rc::gen::inRange(1, 20);
  for (int machine = 0; machine < count; ++machine) {
    const SwitchId inside{cluster.switches.size()};
    cluster.switches.push_back({"inside", NodeId{0}});
    link("up", Port::of(inside), Port::of(SwitchId{0}), up, 1us);
    for (int i = 0; i < size; ++i) {
      const DeviceId device{cluster.devices.size()};
      cluster.devices.push_back({"gpu", 0, NodeId{0}, cluster.models.front().memory});
      link("link", Port::of(device), Port::of(inside), in, 2us);
    }
  }
  return cluster;
}

/// The same program on every device, with collectives of all devices, of machines and of ranks
/// across machines, and messages to neighbours; now and then a device differs.
ExecDag programs(int count, int size) {
  const auto rare = [] { return *rc::gen::inRange(0, 25) == 0; };
  const int all = count * size;
  ExecDag dag = bare_dag();
  std::vector<std::vector<OpId>> last(static_cast<std::size_t>(all));
  const auto collective = [&](std::vector<int> members, std::int64_t bytes, CollectiveKind kind,
                              Stream stream) {
    std::vector<DeviceId> group;
    std::vector<OpId> after;
    for (const int i : members) {
      group.emplace_back(i);
      const auto& own = last[static_cast<std::size_t>(i)];
      after.insert(after.end(), own.begin(), own.end());
    }
    const OpId op = add_collective(dag, kind, group, std::vector<std::int64_t>(group.size(), bytes),
                                   after, stream);
    for (const int i : members) last[static_cast<std::size_t>(i)] = {op};
  };
  for (int step = *rc::gen::inRange(1, 6); step > 0; --step) {
    const auto time = 1us * *rc::gen::inRange(0, 900);
    const std::int64_t bytes = 2 * *rc::gen::inRange(0, 4'000'000);
    const auto kind = *rc::gen::element(CollectiveKind::all_reduce, CollectiveKind::all_gather,
                                        CollectiveKind::reduce_scatter, CollectiveKind::broadcast);
    const auto stream = *rc::gen::element(Stream::gradient, Stream::tensor);
    std::vector<int> members;
    switch (*rc::gen::inRange(0, 5)) {
      case 0:
        for (int i = 0; i < all; ++i) members.push_back(i);
        collective(members, bytes, kind, stream);
        break;
      case 1:
        for (int machine = 0; machine < count; ++machine) {
          members.clear();
          for (int i = 0; i < size; ++i) members.push_back(machine * size + i);
          collective(members, rare() ? bytes + 2 : bytes, kind, stream);
        }
        break;
      case 2:
        for (int i = 0; i < size; ++i) {
          members.clear();
          for (int machine = 0; machine < count; ++machine) members.push_back(machine * size + i);
          collective(members, bytes, kind, stream);
        }
        break;
      case 3: {
        const int distance = *rc::gen::inRange(1, all + 1);
        for (int i = 0; i < all; ++i) {
          auto& own = last[static_cast<std::size_t>(i)];
          own.push_back(
              add_transfer(dag, i, (i + distance) % all, rare() ? 2 * bytes : bytes, own, stream));
        }
        break;
      }
      default:
        for (int i = 0; i < all; ++i) {
          auto& own = last[static_cast<std::size_t>(i)];
          own = {add_delay(dag, i, rare() ? 2 * time : time, own)};
        }
    }
  }
  return dag;
}

TEST_CASE("merge: nothing changes for random programs on machines that are nearly alike") {
  int merged = 0, other = 0;
  CHECK(rc::check([&] {
    const int count = *rc::gen::inRange(1, 5), size = *rc::gen::inRange(1, 5);
    const Cluster cluster = machines(count, size);
    const ExecDag dag = programs(count, size);
    const SimpleCost cost(cluster);
    SimOptions options;
    options.engine = *rc::gen::element(Engine::fast, Engine::fast, Engine::simgrid);
    options.fidelity = *rc::gen::element(Fidelity::hops, Fidelity::macro, Fidelity::analytic);
    options.collectives = *rc::gen::element(CollectiveCost::ideal, CollectiveCost::nccl);
    if (*rc::gen::inRange(0, 4) == 0) options.launch_interval = 5us;
    if (*rc::gen::inRange(0, 6) == 0) {
      options.slowdowns.links.resize(cluster.links.size());
      options.slowdowns.links[0] = SlowPeriods({{100us, 400us, 3}});
    }
    const Pair pair = both(cluster, dag, cost, options);
    RC_ASSERT(same(pair, options.engine));
    ++(pair.merged.merged_operations > 0 ? merged : other);
  }));
  CHECK(merged > 20);  // both happen
  CHECK(other > 5);
}

TEST_CASE("merge: nothing changes for random plans, and steps of every strategy") {
  const World world("lenet5", "nodes:2x4,device=v100-sxm2,intra=20GB/s,inter=5GB/s");
  SimOptions options{Fidelity::hops, CollectiveCost::nccl};
  const auto unchanged = [&](const Plan& plan, Engine engine, Fidelity fidelity = Fidelity::hops) {
    options.engine = engine;
    options.fidelity = fidelity;
    const ExecDag dag = lowering::lower(world.network, world.cluster, plan);
    const Pair pair = both(world.cluster, dag, *world.cost, options);
    CHECK(same(pair, engine));
    return pair.merged.merged_operations;
  };
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    CAPTURE(seed);
    unchanged(random_plan(world.network, 7, 16, seed), Engine::fast);
    unchanged(random_plan(world.network, 7, 16, seed), Engine::fast, Fidelity::analytic);
  }
  for (const strategies::Strategy& strategy : strategies::all()) {
    if (strategy.name == "best") continue;  // a plan of the others, after a search
    CAPTURE(strategy.name);
    const Plan plan = plan_on_all_devices(strategy, world.input(64));
    const std::int64_t merged = unchanged(plan, Engine::fast);
    unchanged(plan, Engine::simgrid);
    unchanged(plan, Engine::fast, Fidelity::analytic);
    if (strategy.name == "data") CHECK(merged > 0);
  }
}

TEST_CASE("merge: a data-parallel step of many machines is one rank's and its collectives'") {
  const World world("lenet5", "nodes:16x8,device=v100-sxm2,intra=400GB/s,inter=25GB/s");
  const ExecDag dag = lowering::lower(world.network, world.cluster,
                                      strategies::strategy("data", "test").plan(world.input(1280)));
  for (const Engine engine : {Engine::fast, Engine::simgrid}) {
    SimOptions options{Fidelity::hops, CollectiveCost::nccl};
    options.engine = engine;
    const Pair pair = both(world.cluster, dag, *world.cost, options);
    CHECK(same(pair, engine));
    const auto size = static_cast<std::int64_t>(dag.size());
    CHECK(size - pair.merged.merged_operations < size / 100);
  }
}

TEST_CASE("merge: rings that cross from one leaf switch to the next are one class") {
  // Three rings share each GPU's port, which decides their rates. Two messages of each ring go up
  // to a spine, which decides nothing.
  const World world("lenet5", "rail:300x3,device=v100-sxm2,unit=150,intra=24GB/s,inter=12GB/s");
  const ExecDag dag = lowering::lower(world.network, world.cluster,
                                      strategies::strategy("data", "test").plan(world.input(900)));
  SimOptions options{Fidelity::hops, CollectiveCost::nccl};
  options.engine = Engine::fast;
  const Pair pair = both(world.cluster, dag, *world.cost, options);
  CHECK(same(pair, Engine::fast));
  const auto size = static_cast<std::int64_t>(dag.size());
  CHECK(size - pair.merged.merged_operations < size / 100);
}

}  // namespace
}  // namespace parsim::sim
