// Which machines the search for mixed stages takes for alike.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "strategies/mixed/classes.hpp"
#include "tests/support/world.hpp"

namespace parsim::strategies::mixed {
namespace {

/// Machines by class, each by its number.
std::vector<std::vector<int>> classes_of(const Cluster& cluster, std::size_t most = 8) {
  const testing::World world("lenet5", cluster);
  std::vector<std::vector<int>> numbers;
  for (const DeviceClass& one : device_classes(world.input(8), most)) {
    numbers.emplace_back();
    for (const auto& machine : one.machines) numbers.back().push_back(machine[0].value / 2);
  }
  return numbers;
}

/// Four machines of two equal devices. Links whose name begins with `slow` are `times` as slow.
Cluster machines(const std::vector<int>& which, bool between, double times) {
  Cluster cluster = topologies::load_cluster(
      "nodes:4x2,device=v100-sxm2,intra=50GB/s,inter=10GB/s,latency=1us", "test");
  for (Link& link : cluster.links) {
    const auto node_of = [&](const Port& port) {
      const auto index = static_cast<std::size_t>(port.index);
      return port.kind == Port::Kind::device ? cluster.devices[index].node
                                             : cluster.switches[index].node;
    };
    const NodeId a = node_of(link.a), b = node_of(link.b);
    for (const int machine : which) {
      const NodeId slow{machine};
      if ((a == slow || b == slow) && (a != b) == between) link.rate.value /= times;
    }
  }
  return cluster;
}

TEST_CASE("device classes: equal machines are alike if their links are, within them and between") {
  using Classes = std::vector<std::vector<int>>;
  CHECK(classes_of(machines({}, true, 1)) == Classes{{0, 1, 2, 3}});
  for (const bool between : {true, false}) {
    CAPTURE(between);
    CHECK(classes_of(machines({1, 3}, between, 4)) == Classes{{0, 2}, {1, 3}});
    CHECK(classes_of(machines({1, 3}, between, 1.05)) == Classes{{0, 2}, {1, 3}});
    CHECK(classes_of(machines({1, 3}, between, 1.0001)) == Classes{{0, 1, 2, 3}});
    CHECK(classes_of(machines({1, 3}, between, 4), 1) == Classes{{0, 1, 2, 3}});
  }
}

}  // namespace
}  // namespace parsim::strategies::mixed
