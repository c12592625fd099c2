// The layer-wise strategy in this project's own costs: beyond the paper.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "core/errors.hpp"
#include "core/random.hpp"
#include "lowering/memory.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "strategies/layer_wise.hpp"
#include "strategies/layer_wise/cluster_model.hpp"
#include "strategies/layer_wise/tables.hpp"
#include "strategies/price.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/world.hpp"
#include "topologies/topologies.hpp"

using namespace parsim;
using namespace parsim::strategies;
using layer_wise::ClusterModel;
using layer_wise::Configuration;
using testing::World;

namespace {

/// t_X of one pair of configurations, every device and every part of its node looked at.
double box_by_box(const StrategyInput& input, const ClusterModel& model, const Consumer& operand,
                  LayerId first, const Configuration& producer, const Configuration& reader) {
  const Network& network = input.network;
  const Layer& layer = network[operand.layer];
  const std::vector<Region> held = boxes(network, first, producer, input.batch, model.speeds());
  const std::vector<Region> parts =
      boxes(network, operand.layer, reader, input.batch, model.speeds());
  double slowest = 0;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    if (parts[k].empty()) continue;
    const Region need = input_region(layer.kind, input_shapes(network, operand.layer), layer.out,
                                     operand.input, {parts[k], {}});
    std::int64_t own = 0, near = 0;
    for (std::size_t j = 0; j < held.size(); ++j) {
      const std::int64_t common = intersect(held[j], need).volume();
      if (j == k) own = common;
      if (model.nodes()[j] == model.nodes()[k]) near += common;
    }
    const double time = static_cast<double>(near - own) * model.inside()[k] +
                        static_cast<double>(need.volume() - near) * model.outside()[k];
    slowest = std::max(slowest, time);
  }
  const double time = static_cast<double>(element_bytes(input.precision)) * slowest;
  return time > 0 ? 2 * (time + model.latency().count()) : 0;
}

}  // namespace

TEST_CASE("layer-wise: never loses to data, owt and model-even by simulated time") {
  for (const char* machines :
       {"star:4,device=p100-sxm2,rate=20GB/s,latency=1us",
        "nodes:2x2,device=p100-sxm2*2+v100-sxm2*2,intra=20GB/s,inter=1GB/s,latency=5us",
        "star:3,device=v100-sxm2*1+m40*2,rate=3GB/s,latency=20us"}) {
    for (const char* name : {"lenet5", "alexnet"}) {
      CAPTURE(machines);
      CAPTURE(name);
      const World world(name, machines);
      const StrategyInput input = world.simulated(48);
      const Seconds step = simulated_price(input, plan_layer_wise(input)).step;
      for (Plan (*other)(const StrategyInput&) : {plan_data, plan_owt, plan_model_even}) {
        CHECK(step <= simulated_price(input, other(input)).step);
      }
    }
  }
}

TEST_CASE("layer-wise: unequal devices get parts in proportion to their speed") {
  const World world("vgg16", "star:2,device=m40*1+v100-sxm2*1,rate=100GB/s,latency=1us");
  StrategyInput input = world.simulated(64);
  const Plan plan = plan_layer_wise(input);
  const LayerPlan& conv = plan.layers[1];
  // The fast device comes first and gets about as many times more samples as it is faster.
  REQUIRE(conv.devices == std::vector{DeviceId{1}, DeviceId{0}});
  REQUIRE(conv.cuts.size() == 1);
  const double share =
      static_cast<double>(conv.cuts[0].sizes[0]) / static_cast<double>(conv.cuts[0].sizes[1]);
  const auto alone = [&](DeviceId device) {
    Seconds time{};
    for (std::size_t l = 1; l < world.network.layers.size(); ++l) {
      time += layer_wise::part_time(input, LayerId{l}, whole(world.network.layers[l].out, 32),
                                    device, l > 1);
    }
    return time;
  };
  CHECK(share == testing::approx(alone(DeviceId{0}) / alone(DeviceId{1})).epsilon(0.15));
  const Seconds even = simulated_price(input, plan_data(input)).step;
  CHECK(simulated_price(input, plan).step < 0.8 * even);
}

TEST_CASE("layer-wise: a device a hundred times slower is left out") {
  const Network network = networks::load_network("lenet5", {}, "test");
  const Cluster cluster = testing::star_of(
      {testing::test_device("slow", "0.1 TFLOP/s"), testing::test_device("fast", "10 TFLOP/s")},
      "10 GB/s", "1us");
  const auto cost = sim::make_constant_efficiency(cluster);
  StrategyInput input{network, cluster, *cost};
  input.batch = 16;
  const Plan plan = plan_layer_wise(input);
  CHECK(plan.layers[1].devices[0] == DeviceId{1});
}

TEST_CASE("layer-wise: few parts stay in one node, with its devices side by side") {
  // Devices of two nodes that alternate by speed: the fast node comes first.
  const World world(
      "alexnet", "nodes:2x3,device=p100-sxm2*3+v100-sxm2*3,intra=20GB/s,inter=1GB/s,latency=1us");
  const layer_wise::ClusterModel own(world.simulated(96), SearchCosts::own);
  CHECK(own.devices() ==
        std::vector{DeviceId{3}, DeviceId{4}, DeviceId{5}, DeviceId{0}, DeviceId{1}, DeviceId{2}});
  CHECK(own.nodes() == std::vector<std::size_t>{0, 0, 0, 1, 1, 1});
  const layer_wise::ClusterModel paper(world.simulated(96), SearchCosts::paper);
  CHECK(paper.devices() == own.devices());
  // Three cards behind one cable: a third of it for each, where all receive at once.
  CHECK(own.outside()[0] == testing::approx(3 / 1e9));
  CHECK(paper.outside()[0] == testing::approx(1 / 1e9));
  CHECK(paper.inside()[0] == testing::approx(1 / 20e9));
}

TEST_CASE("layer-wise: transfers are those of all devices, box by box, to the bit") {
  Random random(25);
  std::size_t moves = 0;
  for (const char* machines :
       {"nodes:4x8,device=v100-sxm2,intra=150GB/s,inter=12GB/s",
        "nodes:4x8,device=v100-sxm2,intra=12GB/s,inter=12GB/s",
        "nodes:3x4,device=v100-sxm2*4+p100-sxm2*8,intra=100GB/s,inter=12GB/s",
        "nodes:2x3,device=v100-sxm2,intra=20GB/s,inter=5GB/s",
        "star:16,device=p100-sxm2,rate=20GB/s,latency=1us"}) {
    for (const auto& [name, batch] : {std::pair{"lenet5", 64}, {"alexnet_grouped", 48}}) {
      CAPTURE(machines);
      CAPTURE(name);
      const World world(name, machines);
      StrategyInput input = world.input(batch);
      const ClusterModel model(input, SearchCosts::own);
      const std::size_t devices = model.devices().size();
      const auto nodes = layer_wise::nodes_of(
          world.network, batch, devices, devices < 16 ? DegreeRule::any : DegreeRule::dividing);
      for (const layer_wise::Node& reader : nodes) {
        const Consumer operand{reader.layers[0], 0};
        const LayerId source = world.network[operand.layer].inputs[0];
        const auto producer = std::find_if(nodes.begin(), nodes.end(), [&](const auto& node) {
          return std::count(node.layers.begin(), node.layers.end(), source) > 0;
        });
        if (producer == nodes.end()) continue;
        const layer_wise::Matrix table = transfer_table(
            input, model, layer_wise::TransferRule::slowest_receiver, operand, *producer, reader);
        for (int i = 0; i < 60; ++i) {
          const std::size_t p = random.below(table.rows), r = random.below(table.columns);
          const double expected = box_by_box(input, model, operand, producer->layers[0],
                                             producer->configurations[p], reader.configurations[r]);
          CHECK(table(p, r) == expected);
          moves += expected > 0 ? 1 : 0;
        }
      }
    }
  }
  CHECK(moves > 1000);
}

TEST_CASE("layer-wise: where the fastest choices do not fit, the search pays for memory") {
  // With a batch between one and four times the units, copies of the weights are cheaper to sum
  // than activations are to gather, but with Adam they take more memory.
  const Network network = testing::network_of(
      "x: vector 1024; dense 1024; relu; dense 1024; relu; dense 1024; relu; dense 1024; loss");
  Cluster cluster = testing::star_of(4, "10 GB/s", "1us");
  const auto cost = sim::make_constant_efficiency(cluster);
  StrategyInput input{network, cluster, *cost};
  input.batch = 2500;
  input.optimizer = Optimizer::adam;
  const auto most = [&](const Plan& plan) {
    std::int64_t bytes = 0;
    for (const lowering::MemoryUse& use : lowering::memory_use(network, cluster, plan)) {
      bytes = std::max(bytes, use.total().value);
    }
    return bytes;
  };
  const auto pays = [](const Plan& plan) {
    return std::any_of(plan.notes.begin(), plan.notes.end(), [](const std::string& note) {
      return note.starts_with("chosen for its memory");
    });
  };
  const Plan fastest = plan_layer_wise(input);
  CHECK_FALSE(pays(fastest));
  for (Device& device : cluster.devices) device.memory = Bytes{most(fastest) * 9 / 10};
  CHECK_FALSE(fits(input, fastest));
  const Plan smaller = plan_layer_wise(input);
  CHECK(fits(input, smaller));
  CHECK(pays(smaller));
  // Nothing helps where nothing fits: the fastest is returned, and reports say that it does not
  // fit.
  for (Device& device : cluster.devices) device.memory = Bytes{1000};
  CHECK(plan_layer_wise(input).layers == fastest.layers);
}

TEST_CASE("layer-wise: finds a plan that fits wherever one exists, against all choices") {
  // Every plan of a small network whose layers are cut in every way: what the leanest needs is just
  // enough memory, and then somewhat more.
  for (const char* text : {"x: image 2x8x8; conv 4 k3 p1; relu; conv 8 k3 p1; dense 6; loss",
                           "x: vector 40; dense 64; relu; dense 8; dense 64; loss",
                           "x: image 3x6x6; conv 16 k3 p1; conv 4 k1; dense 100; loss"}) {
    const Network network = testing::network_of(text);
    for (const Optimizer optimizer : {Optimizer::sgd, Optimizer::adam}) {
      World world(network, testing::star_of(2, "10 GB/s", "1us"));
      StrategyInput input = world.input(4);
      input.optimizer = optimizer;
      layer_wise::ClusterModel model(input, SearchCosts::own);
      const std::vector<layer_wise::Node> nodes = layer_wise::nodes_of(network, input.batch, 2);
      Plan plan = plan_data(input);
      std::set<std::int64_t> needs;
      std::vector<std::size_t> choice(nodes.size(), 0);
      for (bool more = true; more;) {
        for (std::size_t n = 0; n < nodes.size(); ++n) {
          const layer_wise::Configuration& own = nodes[n].configurations[choice[n]];
          for (const LayerId layer : nodes[n].layers) {
            LayerPlan& chosen = plan.layers[layer.index()];
            chosen.cuts = cuts(network, nodes[n].layers[0], own, input.batch, model.speeds());
            chosen.devices = std::vector<DeviceId>(model.devices().begin(),
                                                   model.devices().begin() + own.parts());
          }
        }
        std::int64_t most = 0;
        for (const lowering::MemoryUse& use : lowering::memory_use(network, world.cluster, plan))
          most = std::max(most, use.total().value);
        needs.insert(most);
        more = false;
        for (std::size_t n = nodes.size(); n-- > 0 && !more;) {
          more = ++choice[n] < nodes[n].configurations.size();
          if (!more) choice[n] = 0;
        }
      }
      REQUIRE(needs.size() > 10);
      for (const double room : {1.0, 1.02, 1.1, 1.3}) {
        CAPTURE(text);
        CAPTURE(room);
        const auto memory = static_cast<std::int64_t>(static_cast<double>(*needs.begin()) * room);
        for (Device& device : world.cluster.devices) device.memory = Bytes{memory};
        CHECK(fits(input, plan_layer_wise(input)));
      }
    }
  }
}

TEST_CASE("layer-wise: a graph of many crossing skips is searched, and the plan says how") {
  const World world("densenet121", "star:4,device=p100-sxm2,rate=20GB/s,latency=1us");
  StrategyInput input = world.simulated(64);
  input.search_costs = SearchCosts::paper;
  const Plan plan = plan_layer_wise(input);
  CHECK(paper_price(input, plan).step() <= paper_price(input, plan_data(input)).step());
  const auto honest = [](const std::string& note) { return note.starts_with("NOT proven"); };
  CHECK(std::any_of(plan.notes.begin(), plan.notes.end(), honest));
}
