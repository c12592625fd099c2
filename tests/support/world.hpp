// A network on a cluster, with costs, a simulator and what a strategy is asked: the setting of most
// tests of strategies. Include it where the libraries of networks, topologies and sim are linked.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "strategies/price.hpp"
#include "topologies/topologies.hpp"

namespace parsim::testing {

struct World {
  Network network;
  Cluster cluster;
  std::unique_ptr<CostModel> cost = sim::make_constant_efficiency(cluster);
  /// The fast engine: SimGrid would fork this process, with all that sanitizers hold, for every
  /// plan. That both give the same times is seen to elsewhere (tests/sim/engines_test.cpp).
  std::unique_ptr<Executor> simulator =
      sim::make_simulator(cluster, *cost, {.engine = sim::Engine::fast});

  World(const World&) = delete;
  World& operator=(const World&) = delete;
  World(Network net, Cluster machines) : network(std::move(net)), cluster(std::move(machines)) {}
  World(const std::string& name, Cluster machines)
      : World(networks::load_network(name, {}, "test"), std::move(machines)) {}
  World(const std::string& name, const std::string& machines)
      : World(name, topologies::load_cluster(machines, "test")) {}

  /// Without a simulator; all memory may be filled, so that tests can count it by hand.
  [[nodiscard]] strategies::StrategyInput input(std::int64_t batch) const {
    strategies::StrategyInput in{network, cluster, *cost};
    in.batch = batch;
    in.headroom.share = 0;
    return in;
  }
  [[nodiscard]] strategies::StrategyInput simulated(std::int64_t batch) const {
    strategies::StrategyInput in = input(batch);
    in.simulate = strategies::simulation(network, cluster, *cost, *simulator);
    return in;
  }
};

}  // namespace parsim::testing
