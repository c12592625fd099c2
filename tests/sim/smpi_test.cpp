// Steps replayed by SimGrid's SMPI, which shares no code with our engines beyond SimGrid's links.
#include "sim/smpi.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <string>
#include <vector>

#include "core/errors.hpp"
#include "lowering/lower.hpp"
#include "tests/sim/random_dags.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/on_all_devices.hpp"
#include "tests/support/program.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/tiny_networks.hpp"
#include "tests/support/world.hpp"

namespace parsim::sim {
namespace {

using namespace testing;
using namespace std::chrono_literals;

const SimOptions by_messages{Fidelity::p2p, CollectiveCost::ideal};

/// When the last rank ends, by `smpirun -replay`, which comes with SimGrid.
Seconds replayed(const SmpiReplay& replay) {
  const TemporaryFolder folder;
  folder.write("platform.xml", replay.platform);
  folder.write("hostfile", replay.hostfile);
  std::string list;
  for (std::size_t r = 0; r < replay.traces.size(); ++r) {
    const std::string name = fmt::format("rank{}.txt", r);
    folder.write(name, replay.traces[r]);
    list += name + '\n';
  }
  folder.write("traces.txt", list);
  const Finished run =
      run_program("/usr/bin/env",
                  {"smpirun", "-platform", "platform.xml", "-hostfile", "hostfile", "-replay",
                   "traces.txt", "--log=xbt_cfg.thres:error", "--log=root.fmt:%.12r%e%m%n"},
                  folder.folder());
  const std::string all = run.out + run.err;
  // Printed whenever no rank is left: the first ones may end before the others begin.
  const std::size_t at = all.rfind(" Simulation time");
  REQUIRE_MESSAGE((run.exit_code == 0 && at != std::string::npos), all);
  const std::size_t line = all.rfind('\n', at) + 1;  // 0 if there is none before
  return Seconds{std::stod(all.substr(line, at - line))};
}

Seconds step(const Cluster& cluster, const CostModel& cost, const ExecDag& dag,
             Fidelity fidelity = Fidelity::p2p) {
  SimOptions options = by_messages;
  options.fidelity = fidelity;
  options.engine = Engine::fast;
  return makespan(make_simulator(cluster, cost, options)->run(dag));
}

/// Times of a DAG by SMPI and by us.
std::pair<double, double> smpi_and_ours(const Cluster& cluster, const ExecDag& dag) {
  const SimpleCost cost(cluster);
  return {replayed(smpi_replay(dag, cluster, cost, by_messages)).count(),
          step(cluster, cost, dag).count()};
}

TEST_CASE("smpi: a kernel, a message and a ring by hand") {
  // gpu0 works 5 us, then sends 1 MB over two links of 10 GB/s and 1 us: 2 + 100 us. Then a ring of
  // three sums 3 MB: four messages of 1 MB and 2 us each: 4 (2 + 100) us.
  const Cluster cluster = star({10e9, 10e9, 10e9}, 1us);
  ExecDag dag = bare_dag();
  const OpId delay = add_delay(dag, 0, 5us);
  const OpId sent = add_transfer(dag, 0, 1, 1'000'000, {delay});
  add_collective(dag, CollectiveKind::all_reduce, devices(0, 3), {1'000'000, 1'000'000, 1'000'000},
                 {sent});
  const auto [smpi, ours] = smpi_and_ours(cluster, dag);
  CHECK(1e6 * smpi == testing::approx(5 + 102 + 408).epsilon(1e-4));
  CHECK(1e6 * ours == testing::approx(5 + 102 + 408).epsilon(1e-6));
}

TEST_CASE("smpi: rings over the cables of a cube mesh at once, and all pairs at once") {
  const Cluster cluster = topologies::load_cluster("dgx-v100", "test");
  const std::vector<DeviceId> gpus = devices_of(cluster, DeviceKind::gpu);
  for (const CollectiveKind kind : {CollectiveKind::all_reduce, CollectiveKind::all_gather,
                                    CollectiveKind::reduce_scatter, CollectiveKind::broadcast}) {
    ExecDag dag = bare_dag();
    add_collective(dag, kind, gpus, std::vector<std::int64_t>(gpus.size(), 40'000'000));
    const auto [smpi, ours] = smpi_and_ours(cluster, dag);
    CHECK(smpi == testing::approx(ours).epsilon(1e-4));
  }
  ExecDag dag = bare_dag();
  Shares shares;
  for (int i = 0; i < 8; ++i) {
    shares.regions.push_back(slice_of(dag, 800'000 + 100'000 * i, 1'600'000 * i).region);
    shares.needs.push_back(slice_of(dag, 12'800'000, 0).region);
  }
  const Slice all = slice_of(dag, 12'800'000, 0);
  dag.add(Collective{CollectiveKind::all_to_all, dag.intern(gpus), all, all}, shares,
          Stream::tensor, {});
  const auto [smpi, ours] = smpi_and_ours(cluster, dag);
  CHECK(smpi == testing::approx(ours).epsilon(1e-4));
}

TEST_CASE("smpi: steps of random plans end as they do in the simulator") {
  const int wanted = testing::long_tests() ? 200 : 20;
  std::vector<Cluster> clusters = {star({10e9, 3e9, 25e9, 10e9, 10e9}, 1us)};
  for (const char* call :
       {"nodes:2x4,device=v100-sxm2,intra=100GB/s,inter=10GB/s", "mixed-p100-v100", "dgx-v100",
        "torus:3x3,device=t4", "nodes:8x8,device=v100-sxm2,intra=100GB/s,inter=10GB/s"}) {
    clusters.push_back(topologies::load_cluster(call, "test"));
  }
  const std::vector<Network> networks = tiny_networks();
  int refused = 0;
  std::size_t most_gpus = 0, most_ranks = 0;
  double worst = 0, worst_hops = 0;
  for (int i = 0; i < wanted; ++i) {
    const std::uint64_t seed = static_cast<std::uint64_t>(i);
    const Cluster& cluster = clusters[seed % clusters.size()];
    const Network& network = networks[seed * 7 % networks.size()];
    const std::size_t gpus = devices_of(cluster, DeviceKind::gpu).size();
    const std::size_t used = 3 + seed * 11 % (gpus - 2);  // one of them may be the server
    const auto batch = static_cast<std::int64_t>(4 * used);
    const Plan plan = seed % 5 < 2   ? random_plan(network, used - 1, batch, seed)
                      : seed % 5 < 4 ? random_replicated_plan(network, used - 1, batch, seed)
                                     : random_interleaved_plan(network, used - 1, batch, seed);
    const std::unique_ptr<CostModel> cost = make_constant_efficiency(cluster);
    const ExecDag dag = lowering::lower(network, cluster, with_split_states(plan, seed));
    CAPTURE(i);
    try {
      const SmpiReplay replay = smpi_replay(dag, cluster, *cost, by_messages);
      const double smpi = replayed(replay).count();
      const auto difference_from = [&](Fidelity fidelity) {
        return std::abs(smpi / step(cluster, *cost, dag, fidelity).count() - 1);
      };
      CHECK(difference_from(Fidelity::p2p) <= 0.02);
      worst = std::max(worst, difference_from(Fidelity::p2p));
      worst_hops = std::max(worst_hops, difference_from(Fidelity::hops));
      most_gpus = std::max(most_gpus, used);
      most_ranks = std::max(most_ranks, replay.traces.size());
    } catch (const InputError&) {
      ++refused;
    }
  }
  CHECK(10 * refused <= wanted);
  MESSAGE(
      fmt::format("{} of {} random plans checked, of up to {} GPUs, {} MPI ranks; largest "
                  "difference {:.2g} % message by message, {:.2g} % with a flow per hop",
                  wanted - refused, wanted, most_gpus, most_ranks, 100 * worst, 100 * worst_hops));
}

TEST_CASE("smpi: random messages that compete end as they do in the simulator") {
  CHECK(rc::check([] {
    const Cluster cluster = two_levels();
    // Steps that take much longer than the replay's empty messages, 16 bytes each.
    const ExecDag dag = contended_dag(static_cast<int>(cluster.devices.size()), 100'000);
    const auto [smpi, ours] = smpi_and_ours(cluster, dag);
    RC_ASSERT(std::abs(smpi - ours) <= 2e-3 * ours + 1e-7 * static_cast<double>(dag.size()));
  }));
}

TEST_CASE("smpi: a step of every strategy ends as it does in the simulator") {
  const World world("lenet5", "nodes:2x2,device=p100-sxm2*2+v100-sxm2*2,intra=20GB/s,inter=5GB/s");
  for (const strategies::Strategy& strategy : strategies::all()) {
    if (strategy.name == "best") continue;  // a plan of the others, after a search
    CAPTURE(strategy.name);
    const ExecDag dag = lowering::lower(world.network, world.cluster,
                                        plan_on_all_devices(strategy, world.input(64)));
    const Seconds smpi = replayed(smpi_replay(dag, world.cluster, *world.cost, by_messages));
    CHECK(smpi.count() ==
          testing::approx(step(world.cluster, *world.cost, dag).count()).epsilon(0.001));
  }
}

TEST_CASE("smpi: what traces cannot say is refused") {
  const Cluster cluster = star({1e9, 1e9}, 1us);
  const SimpleCost cost(cluster);
  const ExecDag dag = bare_dag();
  const auto refused = [&](auto change) {
    SimOptions options = by_messages;
    change(options);
    return refusal_of([&] { return smpi_replay(dag, cluster, cost, options); });
  };
  CHECK(refused([](SimOptions& o) { o.collectives = CollectiveCost::nccl; }) ==
        "--smpi: traces hold bytes, no costs of a library; accepted: --collectives ideal with "
        "--smpi");
  CHECK(
      refused([](SimOptions& o) { o.launch_interval = 1us; }) ==
      "--smpi: traces do not say when a host launches its operations; accepted: a profile without "
      "a launch interval");
  CHECK(refused([](SimOptions& o) { o.slowdowns.common_memory.emplace_back(); }) ==
        "--smpi: traces do not say how operations slow each other down; accepted: no "
        "--interference, and a profile of devices with memory of their own");
  CHECK(refused([](SimOptions& o) { o.slowdowns.jitter.relative = 0.1; }) ==
        "--smpi: traces do not say what is slow for a while; accepted: a step without --straggler "
        "and --jitter");
}

}  // namespace
}  // namespace parsim::sim
