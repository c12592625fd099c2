#include "experiment/step_parts.hpp"

#include <doctest/doctest.h>

#include <cmath>
#include <numeric>

#include "lowering/lower.hpp"
#include "sim/sim.hpp"
#include "strategies/strategies.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/world.hpp"
#include "topologies/topologies.hpp"

namespace parsim::experiment {

TEST_CASE("step parts: sum to 1, and follow the machines that gradients cross") {
  const Network network = testing::network_of("x: vector 64; a: dense 64; b: relu; loss");
  const auto parts = [&](const std::string& where) {
    const Cluster cluster = topologies::load_cluster(where, "test");
    const auto cost = sim::make_tile_costs(cluster);
    strategies::StrategyInput input{network, cluster, *cost};
    input.batch = 64;
    const ExecDag dag = lowering::lower(network, cluster, strategies::plan_data(input));
    return step_parts(dag, sim::make_simulator(cluster, *cost, {})->run(dag), *cost, cluster);
  };
  const auto at = [](const StepParts& all, CostClass one) {
    return all[static_cast<std::size_t>(one)];
  };
  const std::string slow = ",rate=10MB/s,latency=1us";
  for (const char* device : {"v100-sxm2", "k80"}) {
    CAPTURE(device);
    const StepParts here = parts(std::string("star:2,device=") + device + slow);
    CHECK(std::abs(std::accumulate(here.begin(), here.end(), 0.0) - 1) < 1e-9);
    CHECK(at(here, CostClass::inside) + at(here, CostClass::between) > 0.5);
    // Of a card without coefficients of its own every kernel is borrowed.
    const bool borrowed = std::string_view(device) == "k80";
    CHECK((at(here, CostClass::borrowed) > 0) == borrowed);
    CHECK((at(here, CostClass::products) > 0) == !borrowed);
    CHECK(at(here, CostClass::convolutions) == 0);
  }
}

TEST_CASE("step parts: delays by hand") {
  ExecDag dag;
  const OpId first = dag.add(Delay{DeviceId{0}, Seconds{3}}, {});
  const std::vector<OpId> after{first};
  static_cast<void>(dag.add(Delay{DeviceId{0}, Seconds{1}}, after));
  Timeline timeline;
  timeline.spans = {{Seconds{0}, Seconds{3}}, {Seconds{4}, Seconds{5}}};
  const Cluster cluster =
      topologies::load_cluster("star:2,device=v100-sxm2,rate=1GB/s,latency=1us", "test");
  const auto cost = sim::make_tile_costs(cluster);
  StepParts expected{};
  expected[static_cast<std::size_t>(CostClass::gaps)] = 1;
  CHECK(step_parts(dag, timeline, *cost, cluster) == expected);
  CHECK(step_parts(ExecDag{}, Timeline{}, *cost, cluster) == StepParts{});
}

}  // namespace parsim::experiment
