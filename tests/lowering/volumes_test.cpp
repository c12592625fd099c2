// Bytes that plans ask for, against laws that can be worked out by hand and against published bars.
#include <doctest/doctest.h>

#include <numeric>

#include "core/dag_traffic.hpp"
#include "lowering/lower.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "strategies/strategies.hpp"
#include "tests/support/approx.hpp"
#include "topologies/topologies.hpp"

using namespace parsim;
using namespace parsim::lowering;

namespace {

struct Case {
  Network network;
  Cluster cluster;
  std::int64_t batch;
  Sync::Kind sync = Sync::Kind::automatic;

  [[nodiscard]] Bytes moved(Plan (*plan)(const strategies::StrategyInput&)) const {
    const auto cost = sim::make_constant_efficiency(cluster);
    strategies::StrategyInput input{network, cluster, *cost};
    input.batch = batch;
    input.sync = sync;
    return bytes_moved(lower(network, cluster, plan(input)));
  }
};

Case vgg16_on(std::int64_t gpus, Sync::Kind sync = Sync::Kind::automatic) {
  return {networks::load_network("vgg16", {}, "test"),
          topologies::load_cluster(
              "star:" + std::to_string(gpus) + ",device=p100-sxm2,rate=20GB/s,latency=1us", "test"),
          32 * gpus, sync};
}

constexpr std::int64_t gpu_counts[] = {1, 2, 4, 8, 16};

}  // namespace

TEST_CASE("volume: data parallelism with rings moves 2(G-1)P exactly") {
  for (const std::int64_t g : gpu_counts) {
    const Case vgg = vgg16_on(g);
    CHECK(vgg.moved(strategies::plan_data) == Bytes{2 * (g - 1) * 138357544 * 4});
  }
}

TEST_CASE(
    "volume: data parallelism with parameter servers moves 2GP, the bars of Jia et al. 2018, "
    "Figure 8") {
  // Digitised bars of VGG-16, data parallelism, in GiB at 2, 4, 8 and 16 GPUs.
  const double bars[] = {2.056, 4.113, 8.225, 16.451};
  for (std::size_t i = 0; i < 4; ++i) {
    const std::int64_t g = gpu_counts[i + 1];
    const Bytes moved = vgg16_on(g, Sync::Kind::server).moved(strategies::plan_data);
    CHECK(moved == Bytes{2 * g * 138357544 * 4});
    const double gib = static_cast<double>(moved.value) / (1 << 30);
    CHECK(gib == testing::approx(bars[i]).epsilon(0.005));
  }
}

TEST_CASE("volume: model-even delivers 2(G-1)B times its channel-cut inputs exactly") {
  for (const std::int64_t g : {2, 4, 8}) {
    const Case vgg = vgg16_on(g);
    // Every convolution and dense layer but the first reads a tensor that is cut by channel, whole.
    std::int64_t inputs = 0;
    bool first = true;
    for (const Layer& layer : vgg.network.layers) {
      if (layer.kind.as<Conv>() == nullptr && layer.kind.as<Dense>() == nullptr) continue;
      if (!first) inputs += vgg.network[layer.inputs[0]].out.elements();
      first = false;
    }
    // The loss is cut by sample: of the logits each device receives the other devices' channels for
    // its samples, B·1000·(G-1)/G in all, and returns as many.
    const std::int64_t batch = vgg.batch;
    const std::int64_t loss = 2 * batch * 1000 * (g - 1) / g;
    CHECK(vgg.moved(strategies::plan_model_even) ==
          Bytes{4 * (2 * (g - 1) * batch * inputs + loss)});
  }
}

TEST_CASE("volume: owt moves 2(G-1) times the convolutions' weights and the dense layers' inputs") {
  for (const std::int64_t g : {2, 4, 8}) {
    const Case vgg = vgg16_on(g);
    std::int64_t weights = 0, gathered = 0, loss = 2 * vgg.batch * 1000 * (g - 1) / g;
    for (const Layer& layer : vgg.network.layers) {
      for (const ParameterId id : layer.parameters) {
        if (layer.kind.as<Conv>() != nullptr) weights += vgg.network[id].elements();
      }
      // Features arrive cut by sample, hidden activations by channel; all are gathered whole, and
      // their gradients scattered.
      if (layer.kind.as<Dense>() != nullptr)
        gathered += vgg.network[layer.inputs[0]].out.elements();
    }
    CHECK(vgg.moved(strategies::plan_owt) ==
          Bytes{4 * (2 * (g - 1) * (weights + vgg.batch * gathered) + loss)});
  }
}

TEST_CASE("volume: a pipeline moves each border's activations once and its gradients once") {
  const Case vgg = vgg16_on(4);
  const auto cost = sim::make_constant_efficiency(vgg.cluster);
  strategies::StrategyInput input{vgg.network, vgg.cluster, *cost};
  input.batch = vgg.batch;
  const Plan plan = strategies::plan_pipeline(input);
  std::int64_t borders = 0;
  for (std::size_t l = 1; l < plan.layers.size(); ++l) {
    const bool border = plan.schedule.stage_of_layer[l] != plan.schedule.stage_of_layer[l - 1];
    if (border) borders += vgg.network[vgg.network.layers[l].inputs[0]].out.elements();
  }
  CHECK(vgg.moved(strategies::plan_pipeline) == Bytes{4 * 2 * vgg.batch * borders});
}
