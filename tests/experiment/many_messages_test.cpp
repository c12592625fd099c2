// Messages that are announced before they are simulated, against those of the DAG.
#include "experiment/many_messages.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/dag_traffic.hpp"
#include "experiment/experiment.hpp"
#include "experiment/run.hpp"
#include "lowering/lower.hpp"
#include "strategies/strategies.hpp"
#include "tests/support/notation.hpp"
#include "topologies/topologies.hpp"

namespace parsim::experiment {
namespace {

struct Counted {
  double estimated = 0, messages = 0;
};

Counted count_messages(const std::string& network, const std::string& cluster,
                       const std::string& strategy) {
  Request request;
  request.verb = "simulate";
  request.sim.engine = sim::Engine::fast;
  request.network = network;
  request.cluster = cluster;
  request.strategies = {strategy};
  const Experiment experiment(request);
  const Plan plan = make_plan(experiment, strategies::strategy(strategy, "")).plan;
  const ExecDag dag = lowering::lower(experiment.network, experiment.cluster, plan);
  double transfers = 0;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpRecord& record = dag.record(OpId{i});
    if (dag.kind(OpId{i}) == OpKind::transfer && record.device != record.to) ++transfers;
  }
  return {messages_between_groups(experiment.network, plan), transfers};
}

}  // namespace

TEST_CASE("many messages: the estimate is near the transfers of uneven splits") {
  for (const std::string network : {"alexnet", "resnet50"}) {
    const Counted counted = count_messages(network, "nodes:16x8,device=t4", "model-even");
    CAPTURE(network);
    CAPTURE(counted.estimated);
    CAPTURE(counted.messages);
    CHECK(counted.estimated > 0.4 * counted.messages);
    CHECK(counted.estimated < 2.5 * counted.messages);
  }
}

TEST_CASE("many messages: none between layers on the same devices") {
  for (const std::string strategy : {"data", "tensor"}) {
    CHECK(count_messages("alexnet", "nodes:2x8,device=t4", strategy).estimated == 0);
  }
}

TEST_CASE("many messages: said from a million on, with what takes less") {
  const Network network = testing::network_of("x: vector 4; dense 1024; dense 1024; loss");
  // Each of `parts` parts of one layer goes to each of as many of the next, and back.
  const auto warning = [&](std::int64_t parts) {
    Plan plan;
    plan.strategy = "mine";
    plan.layers.resize(network.layers.size());
    for (std::size_t layer = 1; layer < 3; ++layer) {
      plan.layers[layer].cuts = {{Dim::channel, std::vector<std::int64_t>(parts, 1)}};
      for (std::int64_t d = 0; d < parts; ++d) {
        plan.layers[layer].devices.emplace_back(
            static_cast<std::int32_t>(d + (layer == 1 ? 0 : 1)));
      }
    }
    plan.layers[0].devices = plan.layers[1].devices;
    plan.layers[3].devices = plan.layers[2].devices;
    return warning_of_many_messages(
        network, topologies::load_cluster("star:1001,device=v100-sxm2,rate=1GB/s", "test"), plan);
  };
  CHECK(warning(700).empty());
  CHECK(
      warning(1000) ==
      "the plan of 'mine' sends about 2 million messages a step between layers on different "
      "devices: its simulation takes about 14 s and 1.2 GB; fewer devices or another strategy take "
      "less");
}

}  // namespace parsim::experiment
