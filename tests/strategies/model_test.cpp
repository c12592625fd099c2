// Model parallelism by filters: which layers are cut how, shares by speed, and what they gain.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "core/errors.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "strategies/model/roles.hpp"
#include "strategies/price.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/tiny_networks.hpp"
#include "topologies/topologies.hpp"

using namespace parsim;
using namespace parsim::strategies;
using model::How;

namespace {

/// Work over peak, nothing else: what "compute-bound" means.
class PeakCost final : public CostModel {
 public:
  explicit PeakCost(const Cluster& cluster) : cluster_(cluster) {}
  Cost compute(const Network& network, LayerId layer, const Part& part, Pass, DeviceId device,
               Precision precision) const override {
    const Flops work =
        forward_flops(network[layer].kind, input_shapes(network, layer), network[layer].out, part);
    return {work / cluster_.model(device).peak_at(precision), Origin::guessed};
  }
  Cost memory(DeviceId, Bytes) const override { return {Seconds{0}, Origin::guessed}; }
  Seconds transfer(DeviceId, DeviceId, Bytes payload) const override {
    return payload / BytesPerSecond{1e15};
  }
  Seconds collective(CollectiveKind, std::span<const DeviceId>, Bytes payload) const override {
    return payload / BytesPerSecond{1e15};
  }
  std::string summary() const override { return "peak"; }

 private:
  const Cluster& cluster_;
};

/// Devices of these relative speeds on links that take no time to speak of.
Cluster devices_of(const std::vector<int>& percent) {
  std::vector<DeviceModel> models;
  for (const int speed : percent) {
    models.push_back(testing::test_device("at" + std::to_string(speed) + "percent",
                                          std::to_string(speed) + " GFLOP/s"));
  }
  return testing::star_of(models, "1000000 GB/s", "0 ns");
}

How how(const Network& network, const model::Roles& roles, std::string_view name) {
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    if (network.layers[l].name == name) return roles.layers[l].how;
  }
  FAIL("no layer " << name);
  return How::first_device;
}

/// Sizes of the cuts of the convolutions, in order.
std::vector<std::vector<std::int64_t>> conv_cuts(const Network& network, const Plan& plan) {
  std::vector<std::vector<std::int64_t>> sizes;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    if (network.layers[l].kind.as<Conv>() == nullptr) continue;
    sizes.push_back(plan.layers[l].cuts.empty() ? std::vector<std::int64_t>{}
                                                : plan.layers[l].cuts[0].sizes.items());
  }
  return sizes;
}

/// Time of the slowest device's kernels for the convolutions at even positions.
Seconds partitioned_time(const StrategyInput& input, const Plan& plan) {
  std::vector<Seconds> busy(input.cluster.devices.size());
  std::size_t position = 0;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    if (input.network.layers[l].kind.as<Conv>() == nullptr || position++ % 2 == 1) continue;
    for (const Cell& cell : cells(input.network, LayerId{l}, plan.layers[l], input.batch)) {
      busy[cell.device.index()] += input.cost
                                       .compute(input.network, LayerId{l}, cell.part, Pass::forward,
                                                cell.device, input.precision)
                                       .time;
    }
  }
  return *std::max_element(busy.begin(), busy.end());
}

}  // namespace

// Moreno-Alvarez et al. 2021, figure 5: even convolutions by filters, odd ones by partial sums;
// pooling local, dense layers on the first device.
TEST_CASE("model: a chain alternates as in the paper") {
  const Network network = networks::load_network("hmp_cifar10", {}, "test");
  const model::Roles roles = model::decide_roles(network);
  std::size_t position = 0;
  bool convolutions_left = true;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const LayerKind& kind = network.layers[l].kind;
    if (kind.as<Conv>() != nullptr) {
      CHECK(roles.layers[l].how == (position % 2 == 0 ? How::partitioned : How::partial_sums));
      convolutions_left = ++position < 8;
    }
    if (kind.as<Pool>() != nullptr && convolutions_left) {
      CHECK(roles.layers[l].how == How::everywhere);  // after each pair: the sum is everywhere
    }
    if (kind.as<Dense>() != nullptr) CHECK(roles.layers[l].how == How::first_device);
  }
  CHECK(position == 8);
  CHECK(roles.groups.size() == 4);
  // MNIST's ends with a partitioned one, whose maps are pooled where they are before they meet.
  const Network mnist = networks::load_network("hmp_mnist", {}, "test");
  const model::Roles ends = model::decide_roles(mnist);
  for (std::size_t l = 0; l < mnist.layers.size(); ++l) {
    if (mnist.layers[l].kind.as<Pool>() != nullptr) CHECK(ends.layers[l].how == How::follows);
  }
}

TEST_CASE("model: where branches meet, and without convolutions") {
  const Network residual = testing::tiny_network("residual");
  const model::Roles roles = model::decide_roles(residual);
  CHECK(how(residual, roles, "stem") == How::partitioned);
  CHECK(how(residual, roles, "stem_relu") == How::follows);
  CHECK(how(residual, roles, "conv1") == How::partial_sums);
  CHECK(how(residual, roles, "norm1") == How::everywhere);
  CHECK(how(residual, roles, "add1") == How::follows);  // the trunk is cut, the branch is whole
  CHECK(how(residual, roles, "conv2") == How::partial_sums);
  CHECK(how(residual, roles, "project") == How::partial_sums);
  CHECK(how(residual, roles, "scores") == How::first_device);
  const Network grouped = testing::tiny_network("grouped");
  const model::Roles groups = model::decide_roles(grouped);
  CHECK(how(grouped, groups, "depthwise") == How::follows);    // each channel for itself
  CHECK(how(grouped, groups, "grouped") == How::partitioned);  // cannot sum over its inputs
  const Network branches = testing::tiny_network("branches");
  const model::Roles joined = model::decide_roles(branches);
  CHECK(how(branches, joined, "branch1") == How::partial_sums);
  CHECK(how(branches, joined, "branch3") == How::follows);
  const Network tokens = testing::tiny_network("tokens");
  const model::Roles dense = model::decide_roles(tokens);
  CHECK(how(tokens, dense, "left") == How::partitioned);
  CHECK(how(tokens, dense, "mix") == How::by_sample);
}

TEST_CASE("model: filters of 70/25/5 and 40/40/20 as in the released code") {
  using Sizes = std::vector<std::vector<std::int64_t>>;
  const Network cifar = networks::load_network("hmp_cifar10", {}, "test");
  const Cluster uneven = devices_of({70, 25, 5});
  const PeakCost cost(uneven);
  for (const Rounding rounding : {Rounding::largest_remainder, Rounding::released}) {
    StrategyInput input{cifar, uneven, cost};
    input.batch = 8;
    input.rounding = rounding;
    // An odd convolution sums over as many channels as the one before has filters.
    CHECK(conv_cuts(cifar, plan_model(input)) == Sizes{{42, 15, 3},
                                                       {42, 15, 3},
                                                       {84, 30, 6},
                                                       {84, 30, 6},
                                                       {168, 60, 12},
                                                       {168, 60, 12},
                                                       {336, 120, 24},
                                                       {336, 120, 24}});
  }
  // By hand, as the paper's command line gives them.
  const Cluster alike = devices_of({1, 1, 1});
  const PeakCost alike_cost(alike);
  StrategyInput by_hand{cifar, alike, alike_cost};
  by_hand.batch = 8;
  by_hand.speeds = {70, 25, 5};
  CHECK(conv_cuts(cifar, plan_model(by_hand)).front() == std::vector<std::int64_t>{42, 15, 3});
  CHECK(conv_cuts(cifar, plan_model(by_hand)).back() == std::vector<std::int64_t>{336, 120, 24});
  by_hand.speeds = {70, 30};
  CHECK_THROWS_WITH_AS(static_cast<void>(plan_model(by_hand)),
                       "--speeds: 2 numbers for 3 devices; accepted: one for each device, in their "
                       "order",
                       InputError);
  // In the order of the cluster, though the faster machine comes first in plans.
  const Cluster unlike =
      topologies::load_cluster("nodes:2x1,device=p100-sxm2*1+v100-sxm2*1", "test");
  const PeakCost unlike_cost(unlike);
  StrategyInput two{cifar, unlike, unlike_cost};
  two.batch = 8;
  two.speeds = {75, 25};
  const Plan by_speeds = plan_model(two);
  CHECK(by_speeds.layers[1].devices == std::vector{DeviceId{1}, DeviceId{0}});
  CHECK(conv_cuts(cifar, by_speeds).front() == std::vector<std::int64_t>{15, 45});
  const Network mnist = networks::load_network("hmp_mnist", {}, "test");
  const Cluster pair = devices_of({40, 40, 20});
  const PeakCost pair_cost(pair);
  StrategyInput input{mnist, pair, pair_cost};
  input.batch = 8;
  CHECK(conv_cuts(mnist, plan_model(input)) == Sizes{{24, 24, 12}, {24, 24, 12}, {96, 96, 48}});
  // 34/33/33: the largest remainder treats them alike, the released rule favours the first.
  const Cluster even = devices_of({34, 33, 33});
  const PeakCost even_cost(even);
  StrategyInput nearly{mnist, even, even_cost};
  nearly.batch = 8;
  CHECK(conv_cuts(mnist, plan_model(nearly)) == Sizes{{20, 20, 20}, {20, 20, 20}, {82, 79, 79}});
  nearly.rounding = Rounding::released;
  CHECK(conv_cuts(mnist, plan_model(nearly)) == Sizes{{22, 19, 19}, {22, 19, 19}, {82, 79, 79}});
}

// An even split waits for the slowest: of compute-bound partitioned layers the ideal gain is
// (1/3) / min(s): 6.67 for 70/25/5 and 1.67 for 40/40/20.
TEST_CASE("model: shares by speed gain (1/3) / min(s) over the even split") {
  const Network network = networks::load_network("hmp_cifar10", {}, "test");
  for (const std::vector<int>& percent : {std::vector{70, 25, 5}, {40, 40, 20}}) {
    const Cluster cluster = devices_of(percent);
    const PeakCost cost(cluster);
    StrategyInput input{network, cluster, cost};
    input.batch = 4;
    const Plan by_speed = plan_model(input), even = plan_model_even(input);
    const double ideal = 100.0 / 3 / *std::min_element(percent.begin(), percent.end());
    const double gain = partitioned_time(input, even) / partitioned_time(input, by_speed);
    CHECK(gain == testing::approx(ideal).epsilon(1e-9));
    // Of the whole step, dense layers on one device included. The even split cuts those as well.
    const auto simulator = sim::make_simgrid_executor(cluster, cost, {});
    input.simulate = simulation(network, cluster, cost, *simulator);
    const double whole = simulated_price(input, even).step / simulated_price(input, by_speed).step;
    MESSAGE("speeds ", percent[0], "/", percent[1], "/", percent[2], ": convolutions by filters ",
            gain, ", ideal ", ideal, ", whole step ", whole);
    CHECK(whole > 0.95 * ideal);
    CHECK(whole < 1.05 * ideal);
  }
}

TEST_CASE("model: never slower than with equal shares, on equal and unequal devices") {
  for (const char* name : {"star:4,device=v100-sxm2,rate=12GB/s,latency=1us",
                           "star:4,device=v100-sxm2*2+p100-sxm2*2,rate=12GB/s,latency=1us",
                           "star:3,device=v100-sxm2*1+t4*2,rate=1GB/s,latency=5us"}) {
    const Cluster cluster = topologies::load_cluster(name, "test");
    const auto cost = sim::make_constant_efficiency(cluster);
    const auto simulator = sim::make_simgrid_executor(cluster, *cost, {});
    for (const char* network_name : {"hmp_mnist", "hmp_cifar10", "alexnet"}) {
      const Network network = networks::load_network(network_name, {}, "test");
      StrategyInput input{network, cluster, *cost};
      input.batch = 32;
      input.simulate = simulation(network, cluster, *cost, *simulator);
      const Plan plan = plan_model(input);
      // The same plan with the filters of every layer shared equally among all devices.
      Plan equal = plan;
      for (LayerPlan& layer : equal.layers) {
        for (Cut& cut : layer.cuts) {
          const auto sum = std::accumulate(cut.sizes.begin(), cut.sizes.end(), std::int64_t{0});
          if (cut.dim == Dim::replica) continue;
          cut.sizes = even_split(sum, cut.sizes.size());
        }
      }
      CAPTURE(name);
      CAPTURE(network_name);
      CHECK(simulated_price(input, plan).step <= simulated_price(input, equal).step * (1 + 1e-9));
    }
  }
}
