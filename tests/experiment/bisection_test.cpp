#include "experiment/bisection.hpp"

#include <doctest/doctest.h>

#include "tests/support/approx.hpp"
#include "tests/support/notation.hpp"
#include "topologies/topologies.hpp"

namespace parsim::experiment {
namespace {

using testing::star_of;

Link link(Port a, Port b, double rate) {
  return {"link", a, b, BytesPerSecond{rate}, Seconds{1e-6}, -1};
}

TEST_CASE("bisection: half the devices of a star, each with its own link") {
  // 2 of 4 (and 2 of 5: the odd one stands on the other side) send 10 GB/s each.
  CHECK(bisection_rate(star_of(4, "10 GB/s", "1 us")) == BytesPerSecond{20e9});
  CHECK(bisection_rate(star_of(5, "10 GB/s", "1 us")) == BytesPerSecond{20e9});
}

TEST_CASE("bisection: of rails, all cards of a unit over the oversubscription") {
  // 2 machines of 4 cards of 50 GB/s a unit: 400 GB/s, or a quarter of that.
  const std::string rails = "rail:4x4,device=t4,intra=400GB/s,inter=50GB/s,unit=2";
  const auto rate = [](const std::string& call) {
    return bisection_rate(topologies::load_cluster(call, "test"))->value;
  };
  CHECK(rate(rails) == testing::approx(400e9));
  CHECK(rate(rails + ",oversubscription=4") == testing::approx(100e9));
}

TEST_CASE("bisection: nothing to cut with a single device") {
  CHECK_FALSE(bisection_rate(star_of(1, "10 GB/s", "1 us")).has_value());
}

/// d0 and d1 on switch 0, d2 and d3 on switch 1.
Cluster two_switches(double between) {
  Cluster cluster = star_of(4, "10 GB/s", "1 us");
  cluster.switches = {{"left", {}}, {"right", {}}};
  cluster.links.clear();
  for (int d = 0; d < 4; ++d) {
    cluster.links.push_back(link(Port::of(DeviceId{d}), Port::of(SwitchId{d / 2}), 10e9));
  }
  cluster.links.push_back(link(Port::of(SwitchId{0}), Port::of(SwitchId{1}), between));
  return cluster;
}

TEST_CASE("bisection: an uplink between two switches limits") {
  CHECK(bisection_rate(two_switches(5e9)) == BytesPerSecond{5e9});
  CHECK(bisection_rate(two_switches(50e9)) == BytesPerSecond{20e9});
}

TEST_CASE("bisection: parallel cables add up") {
  Cluster cluster = two_switches(5e9);
  cluster.links.push_back(cluster.links.back());
  CHECK(bisection_rate(cluster) == BytesPerSecond{10e9});
}

TEST_CASE("bisection: a CPU between two halves forwards nothing") {
  Cluster cluster = two_switches(5e9);
  cluster.models.push_back(cluster.models.front());
  cluster.models.back().kind = DeviceKind::cpu;
  cluster.devices.push_back(cluster.devices.front());
  cluster.devices.back().model = 1;
  const Port cpu = Port::of(DeviceId{4});
  cluster.links.push_back(link(Port::of(SwitchId{0}), cpu, 100e9));
  cluster.links.push_back(link(cpu, Port::of(SwitchId{1}), 100e9));
  CHECK(bisection_rate(cluster) == BytesPerSecond{5e9});
}

TEST_CASE("bisection: a flow finds the detour that the first path took from another") {
  // Ring of four switches, one device each, 10 GB/s device links and 3 GB/s cables: d0, d1 against
  // d2, d3 are cut by the two cables 1-2 and 3-0.
  Cluster cluster = star_of(4, "10 GB/s", "1 us");
  cluster.switches = {{"s0", {}}, {"s1", {}}, {"s2", {}}, {"s3", {}}};
  cluster.links.clear();
  for (int d = 0; d < 4; ++d) {
    cluster.links.push_back(link(Port::of(DeviceId{d}), Port::of(SwitchId{d}), 10e9));
    cluster.links.push_back(link(Port::of(SwitchId{d}), Port::of(SwitchId{(d + 1) % 4}), 3e9));
  }
  CHECK(bisection_rate(cluster) == BytesPerSecond{6e9});
}

TEST_CASE("bisection: of 65,536 devices on a switch it takes no time" * doctest::timeout(10)) {
  Cluster cluster = star_of(2, "10 GB/s", "1 us");
  cluster.links.clear();
  cluster.devices.resize(65536, cluster.devices.front());
  for (std::int32_t d = 0; d < 65536; ++d) {
    cluster.links.push_back(link(Port::of(DeviceId{d}), Port::of(SwitchId{0}), 10e9));
  }
  CHECK(bisection_rate(cluster) == BytesPerSecond{32768 * 10e9});
}

}  // namespace
}  // namespace parsim::experiment
