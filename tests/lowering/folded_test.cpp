// A DAG of one replica of each class, and of one of their equal ranks, unfolded is that of all of
// them, operation by operation.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "core/timeline.hpp"
#include "lowering/folded_runs.hpp"
#include "lowering/unit_finder.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "tests/lowering/compare_folded.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/random_replicas.hpp"
#include "tests/support/tiny_networks.hpp"

namespace parsim::testing {
namespace {

void compare_folded(const World& world, std::uint64_t seed, std::size_t count,
                    FoldedCounts& counts) {
  ReplicatedPlans plans(world, seed);
  sim::SimOptions options;
  options.engine = sim::Engine::fast;
  if (seed % 2 == 0) options.collectives = sim::CollectiveCost::nccl;
  if (seed % 5 == 0) options.fidelity = sim::Fidelity::analytic;
  if (seed % 3 == 0)
    options.launch_interval = Seconds{5e-6};  // what hosts of other replicas launch counts
  options.steps_follow = seed % 2 == 0;
  const auto simulator = sim::make_simulator(world.cluster, *world.cost, options);
  for (std::size_t i = 0; i < count; ++i) {
    CAPTURE(world.network.name);
    CAPTURE(world.cluster.name);
    CAPTURE(seed);
    CAPTURE(i);
    compare_folded(world, *world.cost, plans.next(), *simulator, *simulator, counts);
  }
}

TEST_CASE("folded: the operations and times of one of several equal replicas, on random plans") {
  FoldedCounts counts;
  std::uint64_t seed = 1;
  const std::size_t more = long_tests() ? 10 : 1;
  for (const std::string& cluster : clusters_with_replicas()) {
    for (const Network& network : tiny_networks()) {
      const World world(network, topologies::load_cluster(cluster, "test"));
      compare_folded(world, seed++, 3 * more, counts);
    }
    const World world("gpt:layers=4,hidden=64,heads=4,seq_length=32,vocab_size=128", cluster);
    compare_folded(world, seed++, 20 * more, counts);
  }
  CHECK(counts.plans > 400 * more);
  CHECK(counts.folded > 75 * more);
  CHECK(counts.run > 50 * more);
  MESSAGE(counts.plans << " plans, " << counts.folded << " folded, " << counts.run
                       << " run, of them over any links: " << counts.any_links);
}

TEST_CASE("folded: steps of plan after plan are those of each alone") {
  int plans = 0, folded = 0;
  for (const std::string& cluster : clusters_with_replicas()) {
    const World world("gpt:layers=4,hidden=64,heads=4,seq_length=32,vocab_size=128", cluster);
    lowering::FoldedRuns runs(world.network, world.cluster, *world.cost);
    ReplicatedPlans random(world, 5);
    for (int i = 0; i < 8; ++i) {
      const Plan plan = random.next();
      const lowering::PlanRun after = runs.run(plan, *world.simulator);
      const lowering::PlanRun alone =
          lowering::run_folded(world.network, world.cluster, *world.cost, plan, *world.simulator);
      CAPTURE(world.cluster.name);
      CAPTURE(i);
      const Seconds step = makespan(alone.timeline);
      CHECK(std::abs((makespan(after.timeline) - step).count()) <= 1e-9 * step.count());
      const auto same = [](const lowering::MemoryUse& a, const lowering::MemoryUse& b) {
        return a.total() == b.total();
      };
      CHECK(std::ranges::equal(after.lowered.memory, alone.lowered.memory, same));
      ++plans;
      if (after.lowered.dag.fold) ++folded;
    }
  }
  CHECK(folded > plans / 8);
}

/// Runs DAGs as another engine does, and counts the operations of those that it runs in vain.
struct CountingInVain : Executor {
  explicit CountingInVain(Executor& other) : engine(other) {}
  Timeline run(const ExecDag& dag) override { return engine.run(dag); }
  std::optional<Timeline> run_folded(const ExecDag& dag, FoldedLinks links) override {
    std::optional<Timeline> timeline = engine.run_folded(dag, links);
    if (!timeline) in_vain += dag.size();
    return timeline;
  }
  Executor& engine;
  std::size_t in_vain = 0;
};

TEST_CASE("folded: what is not alike in many micro-batches is found with few of them") {
  const World world("gpt:layers=4,hidden=64,heads=8,seq_length=64,vocab_size=128",
                    "nodes:2x8,device=h100-sxm5,intra=450GB/s,inter=50GB/s,nics=8");
  strategies::StrategyInput input = world.input(256);
  input.tensor_parallel = 4;
  input.context_parallel = 2;
  input.pipeline_parallel = 2;
  input.micro_batches = 256;
  const Plan plan = strategies::plan_tensor(input);
  CountingInVain counting(*world.simulator);
  const lowering::PlanRun run =
      lowering::run_folded(world.network, world.cluster, *world.cost, plan, counting);
  CHECK(counting.in_vain > 0);
  CHECK(8 * counting.in_vain < run.lowered.dag.size());
  const ExecDag all = lowering::lower(world.network, world.cluster, plan);
  CHECK(run.lowered.dag.size() < all.size());
  const Seconds step = makespan(world.simulator->run(all));
  CHECK(std::abs((makespan(run.timeline) - step).count()) <= 1e-9 * step.count());
}

/// A plan with replicas of several classes, of which one has several; if it takes too long to find
/// one, any.
Plan with_unlike_replicas(ReplicatedPlans& plans, lowering::UnitFinder& finder) {
  lowering::UnitFinder::Folded units;
  Plan plan = plans.next();
  for (int i = 0; i < 20; ++i) {
    if (finder.fold(plan, units) && units.units->classes.size() > 1) break;
    plan = plans.next();
  }
  return plan;
}

/// Some devices slow, some of them as slow as another one, and in every other case a slow link.
void compare_with_odd_ones(const std::string& network, const std::string& name, std::uint64_t seed,
                           std::size_t count, FoldedCounts& counts) {
  std::mt19937_64 random(seed);
  Cluster cluster = topologies::load_cluster(name, "test");
  if (seed % 2 == 0) cluster.links[random() % cluster.links.size()].rate.value *= 0.7;
  const World world(network, std::move(cluster));
  std::vector<double> factors(world.cluster.devices.size(), 1);
  for (std::size_t odd = 1 + random() % 3; odd > 0; --odd)
    factors[random() % factors.size()] = std::array{1.5, 1.25, 1.02}[random() % 3];
  const auto cost = sim::make_slowed(*world.cost, factors);
  sim::SimOptions options;
  options.engine = sim::Engine::fast;
  if (seed % 3 == 0) options.collectives = sim::CollectiveCost::nccl;
  const auto simulator = sim::make_simulator(world.cluster, *cost, options);
  options.merge = false;
  const auto reference = sim::make_simulator(world.cluster, *cost, options);
  ReplicatedPlans plans(world, seed);
  lowering::UnitFinder finder(world.cluster, cost.get());
  for (std::size_t i = 0; i < count; ++i) {
    CAPTURE(world.cluster.name);
    CAPTURE(seed);
    CAPTURE(i);
    compare_folded(world, *cost, with_unlike_replicas(plans, finder), *simulator, *reference,
                   counts);
  }
}

TEST_CASE("folded: where one to three devices and a link are slow, all others are still folded") {
  FoldedCounts counts;
  std::uint64_t seed = 1;
  std::vector<std::string> clusters = clusters_with_replicas();
  // Pipelines across machines.
  clusters.emplace_back("nodes:8x2,device=v100-sxm2,intra=50GB/s,inter=10GB/s");
  clusters.emplace_back("nodes:6x4,device=v100-sxm2,intra=50GB/s,inter=5GB/s");
  for (const std::string& cluster : clusters) {
    for (int i = 0; i < 4; ++i) {
      compare_with_odd_ones("gpt:layers=4,hidden=64,heads=4,seq_length=32,vocab_size=128", cluster,
                            seed++, long_tests() ? 60 : 4, counts);
    }
  }
  CHECK(counts.plans > 170);
  CHECK(2 * counts.several_classes >= counts.plans);
  CHECK(counts.any_links > 20);
  CHECK(counts.apart > 0);
  MESSAGE(counts.plans << " plans, " << counts.odd << " with odd replicas or ranks, run folded "
                       << counts.several_classes << ", over any links " << counts.any_links
                       << ", not folded as units ended apart " << counts.apart);
}

// Few gradients have a number of elements that replicas divide.
TEST_CASE("folded: replicas that shard states fold by the shares that they have") {
  FoldedCounts counts;
  const char* const gpt = "gpt:layers=2,hidden=36,heads=4,seq_length=16,vocab_size=61";
  for (const char* network : {"lenet5", gpt}) {
    for (const char* machines : {"12x2", "6x4,nics=4", "3x5", "7x1"}) {
      const World world(network, std::string("nodes:") + machines +
                                     ",device=v100-sxm2,intra=50GB/s,inter=10GB/s");
      const auto devices = static_cast<std::int64_t>(world.cluster.devices.size());
      for (const std::int32_t zero : {1, 2, 3}) {
        for (const std::int32_t tensor : {1, 2}) {
          if (tensor == 2 && (network != gpt || devices % 2 != 0)) continue;
          strategies::StrategyInput input = world.input(2 * devices);
          input.zero_stage = zero;
          input.tensor_parallel = tensor;
          input.pipeline_parallel = 1;
          const Plan plan =
              tensor == 1 ? strategies::plan_data(input) : strategies::plan_tensor(input);
          CAPTURE(network);
          CAPTURE(machines);
          CAPTURE(zero);
          CAPTURE(tensor);
          compare_with_whole(world, *world.cost, strategies::with_memory_options(input, plan),
                             zero == 2, counts);
        }
      }
    }
  }
  CHECK(counts.plans == 30);
  CHECK(counts.several_classes >= 20);
  MESSAGE(counts.plans << " plans, " << counts.folded << " folded, " << counts.run << " run, "
                       << counts.several_classes << " of several classes");
}

TEST_CASE("folded: one slow device of a thousand is one replica of its own") {
  const World world("alexnet", "nodes:128x8,device=v100-sxm2,intra=150GB/s,inter=12GB/s");
  const Plan plan = strategies::plan_data(world.input(32 * 1024));
  std::vector<double> factors(1024, 1);
  factors[517] = 1.5;
  const auto cost = sim::make_slowed(*world.cost, factors);
  const auto simulator = sim::make_simulator(world.cluster, *cost, {.engine = sim::Engine::fast});
  const ExecDag equal = lowering::lower_folded(world.network, world.cluster, *world.cost, plan).dag;
  const lowering::PlanRun run =
      lowering::run_folded(world.network, world.cluster, *cost, plan, *simulator);
  CHECK(run.lowered.dag.size() < 2 * equal.size());
  std::int64_t operations = 0;
  for (std::size_t op = 0; op < run.lowered.dag.size(); ++op)
    operations += run.lowered.dag.count(OpId{op});
  CHECK(operations > 500 * static_cast<std::int64_t>(equal.size()));
}

TEST_CASE("folded: machines of rails fold by leaf switch, operation by operation") {
  FoldedCounts counts;
  for (const char* fabric : {"12x4,unit=4", "8x4,unit=2,oversubscription=3", "12x2,unit=3"}) {
    const World world(
        "gpt:layers=2,hidden=256,heads=4,seq_length=64,vocab_size=512",
        std::string("rail:") + fabric + ",device=v100-sxm2,intra=150GB/s,inter=12GB/s");
    for (const std::int32_t tensor : {1, 2}) {
      for (const std::int32_t zero : {0, 1, 3}) {
        strategies::StrategyInput input = world.input(96);
        input.tensor_parallel = tensor;
        input.pipeline_parallel = 1;
        input.zero_stage = zero;
        input.sequence_parallel = zero == 1;
        const Plan plan = strategies::with_memory_options(input, strategies::plan_tensor(input));
        CAPTURE(fabric);
        CAPTURE(tensor);
        CAPTURE(zero);
        compare_with_whole(world, *world.cost, plan, zero == 3, counts);
      }
    }
  }
  CHECK(counts.run >= 10);
  CHECK(counts.coarser >= 5);
}

TEST_CASE("folded: of the machines of a leaf switch those amid a ring are simulated once") {
  const World world("gpt:layers=2,hidden=256,heads=4,seq_length=64,vocab_size=512",
                    "rail:12x4,device=v100-sxm2,intra=150GB/s,inter=12GB/s,unit=4");
  strategies::StrategyInput input = world.input(48);
  input.tensor_parallel = 4;
  input.pipeline_parallel = 1;
  const Plan plan = strategies::plan_tensor(input);
  sim::SimOptions options;
  options.engine = sim::Engine::fast;
  const auto simulator = sim::make_simulator(world.cluster, *world.cost, options);
  const lowering::PlanRun run =
      lowering::run_folded(world.network, world.cluster, *world.cost, plan, *simulator);
  const ExecDag& dag = run.lowered.dag;
  REQUIRE(dag.fold.units != nullptr);
  CHECK(dag.fold.units->count() == 3);
  const ExecDag whole = lowering::lower(world.network, world.cluster, plan);
  options.merge = false;
  const Timeline all = sim::make_simulator(world.cluster, *world.cost, options)->run(whole);
  CHECK(makespan(run.timeline).count() == testing::approx(makespan(all).count()).epsilon(1e-12));
  CHECK(run.timeline.hop_bytes == all.hop_bytes);
  // Of the four machines of a leaf switch those in the middle of the ring are alike, too.
  CHECK(run.timeline.merged_operations > static_cast<std::int64_t>(dag.size()) / 5);
}

}  // namespace
}  // namespace parsim::testing
