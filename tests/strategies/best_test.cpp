#include <doctest/doctest.h>

#include <algorithm>
#include <limits>

#include "core/errors.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "strategies/best/moves.hpp"
#include "strategies/memory.hpp"
#include "strategies/price.hpp"
#include "topologies/topologies.hpp"

namespace parsim {
namespace {

struct World {
  World(const std::string& network_name, const std::string& cluster_name, std::int64_t batch)
      : network(load_network(network_name, {}, "test")),
        cluster(load_cluster(cluster_name, "test")),
        cost(make_constant_efficiency(cluster)),
        simulator(make_simgrid_executor(cluster, *cost, {})) {
    input.batch = batch;
    input.budget = 150;
    input.simulator = simulator.get();
  }
  Network network;
  Cluster cluster;
  std::unique_ptr<CostModel> cost;
  std::unique_ptr<Executor> simulator;
  StrategyInput input{network, cluster, *cost};
};

/// The plans of all the other strategies that have one.
std::vector<Plan> others(const StrategyInput& input) {
  std::vector<Plan> plans;
  for (const Strategy& row : strategies()) {
    if (row.plan == plan_best) continue;
    try {
      plans.push_back(row.plan(input));
    } catch (const InputError&) {
    }
  }
  return plans;
}

/// Whether any other strategy's plan fits if every device has so much memory.
bool fits_in(World& world, Bytes memory) {
  for (Device& device : world.cluster.devices) device.memory = memory;
  const std::vector<Plan> plans = others(world.input);
  return std::any_of(plans.begin(), plans.end(),
                     [&](const Plan& plan) { return fits(world.input, plan); });
}

const char* const mixed = "star:4,device=v100-sxm2*2+p100-sxm2*2,rate=5GB/s,latency=2us";

}  // namespace

TEST_CASE("best: never loses to another strategy") {
  for (const char* cluster : {mixed, "nodes:2x2,device=p100-sxm2,intra=20GB/s,inter=1GB/s"}) {
    for (const char* network : {"lenet5", "alexnet"}) {
      World world(network, cluster, 64);
      const std::vector<Plan> plans = others(world.input);
      const Price best = simulated_price(world.input, plan_best(world.input));
      for (const Plan& plan : plans) {
        CAPTURE(cluster);
        CAPTURE(network);
        CAPTURE(plan.strategy);
        CHECK(!simulated_price(world.input, plan).better_than(best));
      }
      // What the caller knows already is taken, not made again, and changes nothing.
      StrategyInput told = world.input;
      told.known = plans;
      CHECK(plan_best(told) == plan_best(world.input));
    }
  }
}

TEST_CASE("best: local search finds what no strategy of the table has") {
  World world("alexnet", mixed, 64);
  world.input.budget = 1500;
  Price least;
  for (const Plan& plan : others(world.input)) {
    const Price price = simulated_price(world.input, plan);
    if (price.better_than(least) || least.step == Seconds{}) least = price;
  }
  CHECK(simulated_price(world.input, plan_best(world.input)).better_than(least));
}

TEST_CASE("best: a plan that fits beats a faster one that does not") {
  World world("vgg16", mixed, 64);
  // Just enough room for the least demanding of the other strategies.
  Bytes least{std::numeric_limits<std::int64_t>::max()};
  for (const Plan& plan : others(world.input)) {
    Bytes most{};
    for (const MemoryUse& use : memory_use(world.network, world.cluster, plan)) {
      most = std::max(most, use.total());
    }
    least = std::min(least, most);
  }
  REQUIRE(fits_in(world, least));
  const std::vector<Plan> plans = others(world.input);
  REQUIRE(!std::all_of(plans.begin(), plans.end(),
                       [&](const Plan& plan) { return fits(world.input, plan); }));
  CHECK(fits(world.input, plan_best(world.input)));
}

TEST_CASE("best: a change that is taken back leaves no trace") {
  World world("alexnet", mixed, 64);
  const std::vector<Plan> plans = others(world.input);
  for (const Plan& start : plans) {
    Moves moves(world.input, plans, 7);
    Plan plan = start;
    std::size_t changed = 0;
    for (int i = 0; i < 200; ++i) {
      if (!moves.propose(plan)) {
        CHECK(plan == start);
        continue;
      }
      changed += plan == start ? 0 : 1;
      moves.take_back(plan);
      REQUIRE(plan == start);
    }
    CAPTURE(start.strategy);
    CHECK(changed > 20);
  }
}

}  // namespace parsim
