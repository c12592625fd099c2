// Rings through machines that are described cable by cable: every network card works.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <numeric>
#include <set>

#include "core/routes.hpp"
#include "tests/support/approx.hpp"
#include "topologies/cluster_file.hpp"
#include "topologies/topologies.hpp"

namespace parsim::topologies {
namespace {

using Order = std::array<int, 8>;

/// Machines wired like a DGX-1 with V100, with so many 12.5 GB/s cards each: a card stands on the
/// PCIe switch of two GPUs, as in a DGX-1. `order` renames the GPUs.
Cluster cube_meshes(int machines, int cards, const Order& order) {
  const auto pairs = [&](std::initializer_list<std::pair<int, int>> of) {
    std::string text;
    for (const auto& [a, b] : of) {
      text += fmt::format("[\"gpu{}\", \"gpu{}\"], ", order[static_cast<std::size_t>(a)],
                          order[static_cast<std::size_t>(b)]);
    }
    return text;
  };
  std::string pcie, nics;
  for (int i = 0; i < 8; ++i) {
    pcie += fmt::format("[\"gpu{}\", \"pcie{}\"], ", order[static_cast<std::size_t>(i)], i / 2);
  }
  for (int i = 0; i < 4; ++i) pcie += fmt::format("[\"pcie{}\", \"socket{}\"], ", i, i / 2);
  for (int i = 0; i < cards; ++i) {
    pcie += fmt::format("[\"nic{}\", \"pcie{}\"], ", i, i * 4 / cards);
    nics += fmt::format(", \"nic{}\"", i);
  }
  return parse_cluster(
      fmt::format(R"(name = "pair"
switches = ["infiniband"]
[[nodes]]
name = "node"
count = {}
devices = [{{ model = "v100-sxm2", count = 8 }}]
switches = ["socket0", "socket1", "pcie0", "pcie1", "pcie2", "pcie3"{}]
links = [
  {{ pairs = [{}], rate = "20 GB/s", latency = "1 us" }},
  {{ pairs = [{}], count = 2, rate = "20 GB/s", latency = "1 us" }},
  {{ pairs = [{}], rate = "12 GB/s", latency = "1 us" }},
  {{ a = "socket0", b = "socket1", rate = "6 GB/s", latency = "1 us" }},
]
[[links]]
a = "node*.nic*"
b = "infiniband"
rate = "12.5 GB/s"
latency = "1 us"
)",
                  machines, nics,
                  pairs({{0, 1}, {0, 2}, {1, 3}, {2, 6}, {3, 7}, {4, 5}, {4, 6}, {5, 7}}),
                  pairs({{0, 3}, {0, 4}, {1, 2}, {1, 5}, {2, 3}, {4, 7}, {5, 6}, {6, 7}}), pcie),
      "pair.toml");
}

std::map<Hop, int> uses_by_hop(const std::vector<Ring>& rings) {
  std::map<Hop, int> uses;
  for (const Ring& ring : rings) {
    for (const Route& route : ring.hops) {
      for (const Hop hop : route.hops) ++uses[hop];
    }
  }
  return uses;
}

/// Of all rings together, when rings that share a link share its rate, GB/s.
double rate_together(const Cluster& cluster, const std::vector<Ring>& rings) {
  const std::map<Hop, int> uses = uses_by_hop(rings);
  double sum = 0;
  for (const Ring& ring : rings) {
    double slowest = std::numeric_limits<double>::infinity();
    for (const Route& route : ring.hops) {
      for (const Hop hop : route.hops) {
        slowest = std::min(slowest, cluster[hop.link].rate.value / 1e9 / uses.at(hop));
      }
    }
    sum += slowest;
  }
  return sum;
}

std::vector<Ring> rings_through(const Cluster& cluster) {
  Routes routes(cluster);
  return edge_disjoint_rings(cluster, routes, devices_of(cluster, DeviceKind::gpu));
}

constexpr Order as_wired{0, 1, 2, 3, 4, 5, 6, 7};

TEST_CASE("rings: four cards of a cube mesh carry four rings, over cables of their own") {
  // Each is as slow as PCIe, 12 GB/s: 48 together. Over one cycle of cables, as before, all four
  // share 20 GB/s.
  const Cluster pair = cube_meshes(2, 4, as_wired);
  const std::vector<Ring> rings = rings_through(pair);
  REQUIRE(rings.size() == 4);
  CHECK(rate_together(pair, rings) == testing::approx(48));
  int cards = 0;
  for (const auto& [hop, times] : uses_by_hop(rings)) {
    CHECK(times == 1);
    cards += pair[hop.link].rate.value == 12.5e9 ? 1 : 0;
  }
  CHECK(cards == 2 * 4 * 2);  // two machines, four cards, in and out
}

TEST_CASE("rings: whole rings, hop by hop, through any number of cards and machines") {
  for (const int machines : {2, 3, 5}) {
    for (const int cards : {1, 2, 3, 4}) {
      CAPTURE(machines);
      CAPTURE(cards);
      const Cluster cluster = cube_meshes(machines, cards, as_wired);
      const std::vector<Ring> rings = rings_through(cluster);
      CHECK(rings.size() == static_cast<std::size_t>(cards));
      CHECK(rate_together(cluster, rings) == testing::approx(12 * cards));
      for (const Ring& ring : rings) {
        REQUIRE(ring.hops.size() == ring.devices.size());
        CHECK(std::set<DeviceId>(ring.devices.begin(), ring.devices.end()).size() ==
              ring.devices.size());
        for (std::size_t i = 0; i < ring.hops.size(); ++i) {
          Port at = Port::of(ring.devices[i]);
          for (const Hop hop : ring.hops[i].hops) {
            const Link& link = cluster[hop.link];
            CHECK(at == (hop.backwards ? link.b : link.a));
            at = hop.backwards ? link.a : link.b;
          }
          CHECK(at == Port::of(ring.devices[(i + 1) % ring.devices.size()]));
        }
      }
    }
  }
}

TEST_CASE("rings: neither the order of a group nor the numbers of a machine's GPUs matter") {
  Order order = as_wired;
  for (int turn = 0; turn < 20; ++turn) {
    CAPTURE(turn);
    const Cluster renamed = cube_meshes(2, 4, order);
    CHECK(rate_together(renamed, rings_through(renamed)) == testing::approx(48));
    for (int step = 0; step < 1999; ++step) std::next_permutation(order.begin(), order.end());
  }
  const Cluster pair = cube_meshes(2, 4, as_wired);
  Routes routes(pair);
  std::vector<DeviceId> group = devices_of(pair, DeviceKind::gpu);
  const std::vector<Ring> rings = edge_disjoint_rings(pair, routes, group);
  std::reverse(group.begin() + 2, group.end());
  const std::vector<Ring> again = edge_disjoint_rings(pair, routes, group);
  REQUIRE(again.size() == rings.size());
  for (std::size_t i = 0; i < rings.size(); ++i) CHECK(again[i].devices == rings[i].devices);
}

TEST_CASE("rings: in a torus or dragonfly machines follow links, so that none is crossed twice") {
  // In the order of numbers a row's end and the next row's beginning share links: half the rate.
  for (const char* shape : {"torus:3x3x3", "torus:4x4x4", "torus:4x5x3", "torus:5x5x5", "torus:5x7",
                            "torus:8x8", "torus:2x3x4", "torus:6x6x6", "dragonfly:4x2x2",
                            "dragonfly:5x4x1", "dragonfly:9x4x2", "dragonfly:9x4x1"}) {
    CAPTURE(shape);
    const Cluster cluster =
        load_cluster(std::string(shape) + ",device=t4,rate=10GB/s,latency=1us", "--cluster");
    const std::vector<Ring> rings = rings_through(cluster);
    REQUIRE(rings.size() == 1);
    CHECK(rings[0].devices.size() == cluster.devices.size());
    CHECK(rate_together(cluster, rings) == testing::approx(10));
    for (const auto& [hop, times] : uses_by_hop(rings)) CHECK(times == 1);
  }
}

}  // namespace
}  // namespace parsim::topologies
