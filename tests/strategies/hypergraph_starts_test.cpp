// What the hypergraph strategy makes of other strategies' plans, and that it does not lose to them.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "strategies/estimate.hpp"
#include "strategies/hypergraph/search.hpp"
#include "strategies/lower.hpp"
#include "strategies/price.hpp"
#include "strategies/shares.hpp"
#include "tests/support/meaning.hpp"
#include "tests/support/notation.hpp"
#include "topologies/topologies.hpp"

namespace parsim::hypergraph {
namespace {

struct World {
  Network network;
  Cluster cluster;
  std::unique_ptr<CostModel> cost = make_constant_efficiency(cluster);
  std::unique_ptr<Executor> simulator = make_simgrid_executor(cluster, *cost, {});

  World(const std::string& name, const std::string& machines)
      : network(load_network(name, {}, "test")), cluster(load_cluster(machines, "test")) {}
  [[nodiscard]] StrategyInput input(std::int64_t batch) const {
    StrategyInput in{network, cluster, *cost};
    in.batch = batch;
    return in;
  }
};

const char* const equal = "star:4,device=p100-sxm2,rate=20GB/s,latency=1us";
const char* const unequal = "star:4,device=p100-sxm2*2+v100-sxm2*2,rate=5GB/s,latency=5us";

const Start* start_named(const std::vector<Start>& starts, std::string_view name) {
  const auto at = std::find_if(starts.begin(), starts.end(),
                               [&](const Start& start) { return start.name == name; });
  return at == starts.end() ? nullptr : &*at;
}

}  // namespace

TEST_CASE("hypergraph: blocks of samples end where starts cut") {
  const World world("lenet5", "star:3,device=p100-sxm2,rate=20GB/s,latency=1us");
  const std::vector<Start> starts{{"data", plan_data(world.input(10))}};  // 4, 3 and 3 samples
  CHECK(sample_blocks(10, 2, 1, {}) == std::vector<std::int64_t>{5, 5});
  CHECK(sample_blocks(10, 2, 1, starts) == std::vector<std::int64_t>{4, 1, 2, 3});
  CHECK(sample_blocks(10, 2, 5, starts) == std::vector<std::int64_t>{5, 5});  // no pipeline
  CHECK(sample_blocks(10, 1, 1, starts) == std::vector<std::int64_t>{4, 3, 3});
  CHECK(sample_blocks(2, 16, 1, {}) == std::vector<std::int64_t>{1, 1});
}

TEST_CASE("hypergraph: partitions of starts that say all of their plans") {
  for (const char* machines : {equal, unequal}) {
    const World world("alexnet_grouped", machines);
    const StrategyInput input = world.input(64);
    const std::vector<Start> starts = starts_of(input);
    CHECK((start_named(starts, "data, shares proportional") != nullptr) == (machines == unequal));
    for (const Start& start : starts) {
      CAPTURE(start.name);
      const Candidate candidate = candidate_of_start(input, start);
      CHECK(bytes_moved(lower(world.network, world.cluster, candidate.plan)) ==
            Bytes{4 * candidate.words});
      if (candidate.start_itself) CHECK(candidate.plan.layers == start.plan.layers);
      // Not `pipeline`: its stages may begin at layers that are part of the vertices before.
      const bool simple = start.name.starts_with("data") || start.name == "owt";
      if (simple || start.name == "model-even") CHECK(candidate.start_itself);
    }
    // Partial sums of contractions are no partition of filters.
    const Start* model = start_named(starts, "model");
    REQUIRE(model != nullptr);
    CHECK_FALSE(candidate_of_start(input, *model).start_itself);
  }
}

TEST_CASE("hypergraph: never slower than the starts that are partitions, simulated") {
  for (const auto& [name, machines] :
       {std::pair{"lenet5", equal}, {"lenet5", unequal}, {"alexnet_grouped", unequal}}) {
    CAPTURE(machines);
    CAPTURE(name);
    const World world(name, machines);
    StrategyInput input = world.input(64);
    const std::vector<Start> starts = starts_of(input);
    input.simulator = world.simulator.get();
    const Price price = simulated_price(input, plan_hypergraph(input));
    for (const Start& start : starts) {
      CAPTURE(start.name);
      if (candidate_of_start(input, start).start_itself)
        CHECK_FALSE(simulated_price(input, start.plan).better_than(price));
    }
  }
}

TEST_CASE("hypergraph: without a simulator the estimate chooses, also among starts") {
  const World world("alexnet_grouped", unequal);
  const StrategyInput input = world.input(64);
  const Seconds step = Estimator(input).step_time(plan_hypergraph(input));
  for (const Start& start : starts_of(input)) {
    if (candidate_of_start(input, start).start_itself)
      CHECK(step <= Estimator(input).step_time(start.plan));
  }
}

TEST_CASE("hypergraph: work by time counts layers that have no multiply-accumulates") {
  const World world("resnet18", unequal);
  const StrategyInput input = world.input(64);
  const std::vector<DeviceId> devices{DeviceId{0}, DeviceId{1}, DeviceId{2}, DeviceId{3}};
  const std::vector<double> times = layer_times(input, devices);
  CHECK(std::accumulate(times.begin(), times.end(), 0.0) == doctest::Approx(4.0));
  double without = 0;
  for (std::size_t l = 0; l < times.size(); ++l) {
    const LayerKind& kind = world.network.layers[l].kind;
    if (kind.as<Conv>() == nullptr && kind.as<Dense>() == nullptr) without += times[l];
  }
  CHECK(without > 0.4);  // a tenth of the step, nothing in multiply-accumulates
  // Of one device: its own times.
  const std::vector<double> alone = layer_times(input, {devices[0]});
  double all = 0;
  for (std::size_t l = 0; l < alone.size(); ++l) {
    const Part part{whole(world.network.layers[l].out, 64), {}};
    all += layer_time(input, LayerId{l}, part, devices[0]).count();
  }
  const Part part{whole(world.network.layers[1].out, 64), {}};
  CHECK(alone[1] == doctest::Approx(layer_time(input, LayerId{1}, part, devices[0]).count() / all));
}

}  // namespace parsim::hypergraph
