#include "experiment/explain.hpp"

#include <doctest/doctest.h>

#include "lowering/estimate.hpp"
#include "lowering/lower.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/world.hpp"
#include "topologies/topologies.hpp"

namespace parsim::experiment {

TEST_CASE("explain: an alternative's step is the estimate of the plan with that one change") {
  const Network network = networks::load_network("alexnet", {}, "test");
  const Cluster cluster =
      topologies::load_cluster("star:4,device=v100-sxm2,rate=5GB/s,latency=2us", "test");
  const auto cost = sim::make_constant_efficiency(cluster);
  strategies::StrategyInput input{network, cluster, *cost};
  input.batch = 64;
  const Plan plan = strategies::plan_owt(input);
  const std::vector<Plan> others{strategies::plan_data(input)};
  const Explanation explanation = explain(input, plan, others);
  lowering::Estimator estimator(input.step());
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

TEST_CASE("explain: the layers' work adds up to the kernels of a device") {
  const testing::World world("alexnet", "star:4,device=v100-sxm2,rate=5GB/s,latency=2us");
  const strategies::StrategyInput input = world.input(64);
  const Plan plan = strategies::plan_data(input);
  const ExecDag dag = lowering::lower(world.network, world.cluster, plan);
  double kernels = 0;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Op op = dag.op(OpId{i});
    const auto* compute = std::get_if<Compute>(&op);
    if (compute == nullptr || compute->device != DeviceId{0}) continue;
    kernels += device_time(dag, OpId{i}, *world.cost).time.count();
  }
  double work = 0;
  for (const LayerReason& reason : explain(input, plan, {}).layers) work += reason.work.count();
  CHECK(work == testing::approx(kernels).epsilon(1e-12));
}

TEST_CASE("explain: the layers' work adds up to the kernels of all micro-batches") {
  const testing::World world("alexnet", "star:2,device=v100-sxm2,rate=5GB/s,latency=2us");
  strategies::StrategyInput input = world.input(64);
  input.micro_batches = 4;
  const Plan plan = strategies::plan_pipeline(input);  // every layer on one device
  const ExecDag dag = lowering::lower(world.network, world.cluster, plan);
  double kernels = 0;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    if (dag.kind(OpId{i}) != OpKind::compute) continue;
    kernels += device_time(dag, OpId{i}, *world.cost).time.count();
  }
  double work = 0;
  for (const LayerReason& reason : explain(input, plan, {}).layers) work += reason.work.count();
  CHECK(work == testing::approx(kernels).epsilon(1e-12));
}

TEST_CASE("explain: layers of a plan of several stages have alternatives") {
  const testing::World world("resnet18", "star:4,device=v100-sxm2,rate=5GB/s,latency=2us");
  strategies::StrategyInput input = world.input(64);
  for (Plan (*make)(const strategies::StrategyInput&) :
       {strategies::plan_pipeline, strategies::plan_hybrid}) {
    input.parts = 2;
    input.pipeline_parallel = 4;
    const Plan plan = make(input);
    CAPTURE(plan.strategy);
    const Explanation explanation = explain(input, plan, {});
    CHECK(explanation.step == lowering::Estimator(input.step()).step_time(plan));
    std::size_t moved = 0, cut = 0;
    for (const LayerReason& reason : explanation.layers) {
      moved += reason.alternative.find(" in stage ") == std::string::npos ? 0 : 1;
      cut += reason.alternative.find(" over its stage") == std::string::npos ? 0 : 1;
    }
    // Layers on either side of a border may change sides.
    if (make == strategies::plan_pipeline) CHECK(moved >= 4);
    if (make == strategies::plan_hybrid) CHECK(cut >= 2);
  }
}

TEST_CASE("explain: moving a layer to the next stage is the estimate of that plan") {
  const Network network =
      testing::network_of("x: vector 64; dense 64; dense 64; dense 64; dense 64; loss");
  const testing::World world(network, testing::star_of(2, "10 GB/s", "1us"));
  strategies::StrategyInput input = world.input(32);
  input.micro_batches = 4;
  const Plan plan = strategies::plan_pipeline(input);
  std::size_t last = 0;  // of the first stage
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    if (plan.schedule.stage_of_layer[l] == 0) last = l;
  }
  const Explanation explanation = explain(input, plan, {});
  const LayerReason& reason = explanation.layers[last];
  CHECK(reason.alternative == "whole in stage 1, with " + network.layers[last + 1].name);
  Plan changed = plan;
  changed.layers[last] = plan.layers[last + 1];
  changed.schedule.stage_of_layer[last] = 1;
  validate(changed, network, world.cluster, "test");
  CHECK(reason.alternative_step == lowering::Estimator(input.step()).step_time(changed));
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

}  // namespace parsim::experiment
