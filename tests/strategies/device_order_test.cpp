#include "strategies/device_order.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "core/routes.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/world.hpp"

using namespace parsim;
using namespace parsim::strategies;
using testing::World;

namespace {

double time_between(const World& world, const std::vector<DeviceId>& order) {
  double sum = 0;
  for (std::size_t i = 1; i < order.size(); ++i) {
    constexpr Bytes large{16'000'000};
    sum += std::max(world.cost->transfer(order[i - 1], order[i], large),
                    world.cost->transfer(order[i], order[i - 1], large))
               .count();
  }
  return sum;
}

/// Rate of the slowest way between neighbours.
double slowest_way(const Cluster& cluster, const std::vector<DeviceId>& order) {
  Routes routes(cluster);
  double rate = 1e300;
  for (std::size_t i = 1; i < order.size(); ++i)
    rate = std::min(rate, routes.between(order[i - 1], order[i]).rate.value);
  return rate;
}

std::vector<DeviceId> lowest_devices(std::size_t count) {
  std::vector<DeviceId> devices;
  for (std::size_t d = 0; d < count; ++d) devices.emplace_back(d);
  return devices;
}

}  // namespace

TEST_CASE("device order: no order of the devices has a smaller sum") {
  for (const char* machines :
       {"dgx-v100", "nodes:3x2,device=p100-sxm2,intra=20GB/s,inter=1GB/s,latency=1us"}) {
    CAPTURE(machines);
    const World world("lenet5", machines);
    const StrategyInput input = world.input(8);
    std::vector<DeviceId> devices{DeviceId{0}, DeviceId{4}, DeviceId{2}, DeviceId{5}, DeviceId{1}};
    const double found = time_between(world, in_chain_order(input, devices));
    std::sort(devices.begin(), devices.end());
    do {
      CHECK(found <= time_between(world, devices) * (1 + 1e-9));
    } while (std::next_permutation(devices.begin(), devices.end()));
  }
}

TEST_CASE("device order: equal ways leave the devices as they are, more than twelve get no worse") {
  const World star("lenet5", testing::star_of(6, "10 GB/s", "1us"));
  CHECK(in_chain_order(star.input(8), lowest_devices(6)) == lowest_devices(6));
  const World nodes("lenet5", "nodes:4x4,device=p100-sxm2,intra=20GB/s,inter=1GB/s,latency=1us");
  std::vector<DeviceId> mixed = lowest_devices(16);  // by place in their node: never neighbours
  std::stable_sort(mixed.begin(), mixed.end(),
                   [](DeviceId a, DeviceId b) { return a.value % 4 < b.value % 4; });
  const StrategyInput input = nodes.input(16);
  CHECK(time_between(nodes, in_chain_order(input, mixed)) < 0.5 * time_between(nodes, mixed));
  CHECK(in_chain_order(input, lowest_devices(16)) == lowest_devices(16));
}

TEST_CASE("device order: stages of a pipeline on a cube mesh are neighbours over NVLink") {
  const World world("vgg16", "dgx-v100");
  const StrategyInput input = world.input(64);
  // One NVLink carries 25 GB/s; from GPU 3 to GPU 4 there is none, only PCIe.
  CHECK(slowest_way(world.cluster, lowest_devices(8)) < 20e9);
  const Plan plan = plan_pipeline(input);
  std::vector<DeviceId> stages;
  for (const LayerPlan& layer : plan.layers) {
    if (stages.empty() || stages.back() != layer.devices[0]) stages.push_back(layer.devices[0]);
  }
  REQUIRE(stages.size() == 8);
  CHECK(slowest_way(world.cluster, stages) >= 20e9);
}
