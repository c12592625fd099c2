#include "strategies/explain.hpp"

#include <doctest/doctest.h>

#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "strategies/estimate.hpp"
#include "topologies/topologies.hpp"

namespace parsim {

TEST_CASE("explain: an alternative's step is the estimate of the plan with that one change") {
  const Network network = load_network("alexnet", {}, "test");
  const Cluster cluster = load_cluster("star:4,device=v100-sxm2,rate=5GB/s,latency=2us", "test");
  const auto cost = make_constant_efficiency(cluster);
  StrategyInput input{network, cluster, *cost};
  input.batch = 64;
  const Plan plan = plan_owt(input);
  const std::vector<Plan> others{plan_data(input)};
  const Explanation explanation = explain(input, plan, others);
  Estimator estimator(input);
  CHECK(explanation.step == estimator.step_time(plan));
  REQUIRE(explanation.layers.size() == network.layers.size());
  std::size_t by_sample = 0;
  for (const LayerReason& reason : explanation.layers) {
    const Layer& layer = network[reason.layer];
    CAPTURE(layer.name);
    if (layer.kind.as<Input>() != nullptr) {
      CHECK(reason.alternative.empty());
      continue;
    }
    if (reason.alternative != "sample 4 as in data") continue;
    ++by_sample;
    // Dense layers by sample: their gradients must be summed over 5 GB/s, which costs.
    Plan changed = plan;
    changed.layers[reason.layer.index()] = others[0].layers[reason.layer.index()];
    CHECK(reason.alternative_step == estimator.step_time(changed));
    if (layer.kind.as<Dense>() != nullptr && layer.name == "fc6") {
      CHECK(reason.alternative_step > explanation.step);
    }
  }
  CHECK(by_sample > 0);
}

TEST_CASE("explain: splits in words") {
  LayerPlan layer;
  CHECK(split_text(layer) == "whole");
  layer.cuts = {{Dim::sample, {16, 16}}, {Dim::channel, {3, 2}}};
  CHECK(split_text(layer) == "sample 2 x channel 2");
  layer.cuts = {{Dim::sample, {42, 22, 0}}};
  CHECK(split_text(layer) == "sample 42,22,0");
  layer.cuts = {{Dim::replica, {1, 1, 1}}};
  CHECK(split_text(layer) == "replica 3");
}

}  // namespace parsim
