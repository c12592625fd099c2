// Generators by hand: hops, latencies, rates and counts worked out in the comments.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "core/errors.hpp"
#include "core/link_kind.hpp"
#include "core/routes.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/refusal.hpp"
#include "topologies/topologies.hpp"

namespace parsim::topologies {
namespace {

Cluster make(const std::string& call) { return load_cluster(call, "--cluster"); }

struct Way {
  std::size_t hops;
  double latency_us;
  double rate;
  friend bool operator==(const Way& a, const Way& b) {
    return a.hops == b.hops && testing::approx(a.latency_us) == b.latency_us &&
           testing::approx(a.rate) == b.rate;
  }
};

Way way(const Cluster& cluster, std::int32_t from, std::int32_t to) {
  Routes routes(cluster);
  const Route& route = routes.between(DeviceId{from}, DeviceId{to});
  return {route.hops.size(), route.latency.count() * 1e6, route.rate.value};
}

std::vector<Ring> rings_of(const Cluster& cluster) {
  Routes routes(cluster);
  return edge_disjoint_rings(cluster, routes, devices_of(cluster, DeviceKind::gpu));
}

double slowest(const Ring& ring) {
  double rate = ring.hops.front().rate.value;
  for (const Route& route : ring.hops) rate = std::min(rate, route.rate.value);
  return rate;
}

TEST_CASE("star: a path crosses two links") {
  const Cluster star = make("star:8,device=p100-sxm2,rate=25GB/s,latency=1us");
  CHECK(way(star, 0, 7) == Way{2, 2.0, 25e9});
  CHECK(star.links.size() == 8);
  CHECK(devices_of(star, DeviceKind::gpu).size() == 8);
  CHECK(devices_of(star, DeviceKind::cpu).empty());
}

TEST_CASE("star: a mix comes in the order of its names, and a CPU only if asked for") {
  const Cluster star = make("star:3,device=t4*1+k80*2,rate=1GB/s,latency=1us,cpu=xeon-e5-2600");
  std::vector<std::string> models;
  for (const Device& device : star.devices) {
    models.push_back(star.models[static_cast<std::size_t>(device.model)].name);
  }
  CHECK(models == std::vector<std::string>{"t4", "k80", "k80", "xeon-e5-2600"});
  CHECK(way(star, 0, 3) == Way{2, 2.0, 1e9});
}

TEST_CASE("nodes: inside through the machine's switch, outside through its one port") {
  const Cluster nodes = make(
      "nodes:128x8,device=v100-sxm2,intra=400GB/s,inter=25GB/s,intra-latency=1us,"
      "inter-latency=3us");
  CHECK(nodes.devices.size() == 1024);
  CHECK(nodes.links.size() == 1024 + 128);
  CHECK(way(nodes, 0, 7) == Way{2, 2.0, 400e9});
  // GPU, switch, network, switch, GPU: 1 + 3 + 3 + 1 us.
  CHECK(way(nodes, 7, 8) == Way{4, 8.0, 25e9});
  CHECK(rings_of(nodes).size() == 1);
}

TEST_CASE("nodes: one machine has no network") {
  CHECK(make("nodes:1x2,device=t4,intra=10GB/s,inter=1GB/s").switches.size() == 1);
  CHECK(make("nodes:2x2,device=t4,intra=10GB/s,inter=1GB/s").switches.size() == 3);
}

TEST_CASE("nodes: device i leaves by card i·nics/M, and there is a ring for each card") {
  const Cluster nodes = make("nodes:2x8,device=t4,intra=100GB/s,inter=10GB/s,nics=4");
  Routes routes(nodes);
  for (std::int32_t i = 0; i < 8; ++i) {
    const Route& route = routes.between(DeviceId{i}, DeviceId{15});
    REQUIRE(route.hops.size() == 4);
    CHECK(nodes[route.hops[1].link].name == "n0.nic" + std::to_string(i / 2) + "-network");
    // Inside, even neighbours on one card use the machine's switch.
    if (i > 0) {
      CHECK(nodes[routes.between(DeviceId{i - 1}, DeviceId{i}).hops[0].link].rate.value == 100e9);
    }
  }
  const std::vector<Ring> rings = rings_of(nodes);
  REQUIRE(rings.size() == 4);
  std::set<std::size_t> outside;
  for (const Ring& ring : rings) {
    CHECK(slowest(ring) == 10e9);
    for (const Route& route : ring.hops) {
      if (route.hops.size() < 4) continue;
      // Neither a card's way out nor another's way in is shared by two rings.
      CHECK(outside.insert(route.hops[1].index()).second);
      CHECK(outside.insert(route.hops[2].index()).second);
    }
  }
  CHECK(outside.size() == 16);  // 2 machines x 4 cards x 2 directions
}

constexpr std::string_view rails =
    "rail:4x8,device=t4,intra=400GB/s,inter=50GB/s,intra-latency=1us,inter-latency=2us,unit=2,"
    "oversubscription=4";

TEST_CASE("rail: within a unit by a leaf, between units by a spine, on the destination's rail") {
  const Cluster cluster = make(std::string(rails));
  // Of each GPU three links; of each of 2 units 8 uplinks of 2 * 50 / 4 GB/s.
  CHECK(cluster.links.size() == 32 * 3 + 2 * 8);
  CHECK(way(cluster, 0, 7) == Way{2, 2.0, 400e9});
  // GPU, switch, card, leaf, card, switch, GPU: 1 + 1 + 2 + 2 + 1 + 1 us; with a spine 4 us more.
  CHECK(way(cluster, 0, 8) == Way{6, 8.0, 50e9});
  CHECK(way(cluster, 0, 15) == Way{6, 8.0, 50e9});
  CHECK(way(cluster, 0, 16) == Way{8, 12.0, 25e9});
  CHECK(way(cluster, 0, 31) == Way{8, 12.0, 25e9});
  Routes routes(cluster);
  for (std::int32_t from = 0; from < 32; ++from) {
    for (std::int32_t to = 0; to < 32; ++to) {
      if (from / 8 == to / 8) continue;
      const std::string card = "nic" + std::to_string(to % 8);
      const Route& route = routes.between(DeviceId{from}, DeviceId{to});
      CHECK(cluster[route.hops[1].link].name.ends_with(card));
      CHECK(cluster[route.hops[route.hops.size() - 2].link].name.ends_with(card));
    }
  }
}

TEST_CASE("rail: a ring for each rail, each on cards, leaves and spines of its own") {
  const Cluster cluster = make(std::string(rails));
  const std::vector<Ring> rings = rings_of(cluster);
  REQUIRE(rings.size() == 8);
  std::set<std::size_t> taken;  // directed links outside the machines
  for (const Ring& ring : rings) {
    CHECK(slowest(ring) == 25e9);
    for (const Route& route : ring.hops) {
      for (const Hop& hop : route.hops) {
        if (cluster[hop.link].rate.value > 50e9) continue;
        CHECK(taken.insert(hop.index()).second);
      }
    }
  }
}

TEST_CASE("rail: GPUs of one rail meet at its leaf, and one unit needs no spine") {
  const Cluster cluster = make("rail:4x8,device=t4,intra=400GB/s,inter=50GB/s");
  CHECK(cluster.links.size() == 32 * 3);
  Routes routes(cluster);
  const std::vector<DeviceId> rail{DeviceId{3}, DeviceId{11}, DeviceId{19}, DeviceId{27}};
  for (const Ring& ring : edge_disjoint_rings(cluster, routes, rail)) {
    for (const Route& route : ring.hops) {
      REQUIRE(route.hops.size() == 6);
      CHECK(cluster[route.hops[2].link].name.ends_with("nic3-leaf3"));
    }
  }
  CHECK(make("rail:1x8,device=t4").links.size() == 8);
}

TEST_CASE("nvl72: a rack is one NVLink domain, racks are joined by 72 rails") {
  const Cluster racks = make("nvl72:3,unit=2,latency=1us,oversubscription=2");
  CHECK(devices_of(racks, DeviceKind::gpu).size() == 216);
  CHECK(racks.nodes.size() == 3);
  CHECK(racks.model(DeviceId{0}).name == "gb200");
  // Shares of 900 GB/s of NVLink 5 and of 50 GB/s of InfiniBand.
  const double nvlink = 900e9 * link_numbers(LinkKind::nvlink5).efficiency;
  const double infiniband = 50e9 * link_numbers(LinkKind::infiniband).efficiency;
  CHECK(way(racks, 0, 71) == Way{2, 2.0, nvlink});
  CHECK(way(racks, 0, 72 + 5) == Way{6, 6.0, infiniband});
  CHECK(way(racks, 0, 144 + 5) == Way{8, 8.0, infiniband});
  CHECK(rings_of(racks).size() == 72);
  CHECK(make("nvl72:1").links.size() == 72);
  CHECK(testing::refusal_of([] { (void)make("nvl72:2000"); }) ==
        "--cluster: 2000 racks; accepted: at most 1820 racks");
  CHECK(testing::refusal_of([] { (void)make("rail:2x2,device=t4,oversubscription=0.5"); }) ==
        "--cluster:oversubscription: '0.5'; accepted: a number from 1 to 64");
}

TEST_CASE("nodes: a mix is of one machine or of all of them") {
  const auto models = [](const Cluster& cluster) {
    std::string text;
    for (const Device& device : cluster.devices) {
      text += cluster.models[static_cast<std::size_t>(device.model)].name.front();
    }
    return text;
  };
  CHECK(models(make("nodes:2x4,device=t4*2+k80*2")) == "ttkkttkk");
  CHECK(models(make("nodes:2x4,device=t4*4+k80*4")) == "ttttkkkk");
}

TEST_CASE("nodes: machines may take part with some of their devices") {
  const Cluster cluster = make("nodes:4x4,device=t4,placement=1+1+4+3,intra=10GB/s,inter=1GB/s");
  std::vector<std::size_t> counts(cluster.nodes.size());
  for (const Device& device : cluster.devices) ++counts[device.node.index()];
  CHECK(counts == std::vector<std::size_t>{1, 1, 4, 3});
  CHECK(cluster.devices.back().name == "n3.gpu2");
  const auto refused = [](const std::string& placement) {
    return testing::refusal_of([&] { make("nodes:2x4,device=t4,placement=" + placement); });
  };
  CHECK(
      refused("1+2+3").ends_with("placement: 3 numbers; accepted: one for each of the 2 machines"));
  CHECK(refused("1+5").ends_with("placement: '5'; accepted: a whole number from 1 to 4"));
}

TEST_CASE("ring: neighbours are three links apart, the farthest five on a ring of five") {
  const Cluster ring = make("ring:5,device=t4,rate=10GB/s,latency=1us");
  CHECK(way(ring, 0, 1) == Way{3, 3.0, 10e9});
  CHECK(way(ring, 0, 4) == Way{3, 3.0, 10e9});
  CHECK(way(ring, 0, 2) == Way{4, 4.0, 10e9});
  CHECK(ring.links.size() == 10);
  CHECK(make("ring:2,device=t4").links.size() == 3);  // one cable, not there and around
}

TEST_CASE("torus: hops are the distance around each dimension, plus two to and from the routers") {
  const Cluster torus = make("torus:4x5x3,device=t4,rate=10GB/s,latency=1us");
  CHECK(torus.devices.size() == 60);
  CHECK(torus.links.size() == 60 + 3 * 60);
  const auto around = [](std::int32_t a, std::int32_t b, std::int32_t length) {
    const std::int32_t d = std::abs(a - b);
    return std::min(d, length - d);
  };
  Routes routes(torus);
  for (std::int32_t to = 1; to < 60; ++to) {
    const std::int32_t distance =
        around(0, to / 15, 4) + around(0, to / 3 % 5, 5) + around(0, to % 3, 3);
    CHECK(routes.between(DeviceId{0}, DeviceId{to}).hops.size() ==
          static_cast<std::size_t>(distance) + 2);
  }
}

TEST_CASE("fat tree: two, four or six links, by what the ends share") {
  // k = 4: 2 devices per edge switch, 4 per pod, 16 in all; 4 cores, 4 x (2 + 2) switches in pods.
  const Cluster tree = make("fat-tree:16,device=t4,k=4,rate=10GB/s,latency=1us");
  CHECK(tree.switches.size() == 20);
  CHECK(tree.links.size() == 3 * 16);
  CHECK(way(tree, 0, 1) == Way{2, 2.0, 10e9});
  CHECK(way(tree, 0, 2) == Way{4, 4.0, 10e9});
  CHECK(way(tree, 0, 4) == Way{6, 6.0, 10e9});
  // 4 is the least number of ports that suffices for 16, and so the default.
  CHECK(make("fat-tree:16,device=t4,rate=10GB/s,latency=1us").links == tree.links);
}

TEST_CASE("fat tree: shifting all devices by any distance shares no link") {
  const Cluster tree = make("fat-tree:16,device=t4,k=4");
  Routes routes(tree);
  for (std::int32_t shift = 1; shift < 16; ++shift) {
    std::set<std::size_t> used;
    for (std::int32_t i = 0; i < 16; ++i) {
      for (const Hop hop : routes.between(DeviceId{i}, DeviceId{(i + shift) % 16}).hops) {
        CAPTURE(shift);
        CHECK(used.insert(hop.index()).second);
      }
    }
  }
}

TEST_CASE("fat tree: leaves and spines") {
  const Cluster tree =
      make("fat-tree:10,device=t4,leaf=4,spines=2,rate=10GB/s,uplink-rate=5GB/s,latency=1us");
  CHECK(tree.switches.size() == 2 + 3);
  CHECK(tree.links.size() == 10 + 3 * 2);
  CHECK(way(tree, 0, 3) == Way{2, 2.0, 10e9});
  CHECK(way(tree, 0, 9) == Way{4, 4.0, 5e9});
}

TEST_CASE("dragonfly: one global cable between any two groups, at most five links apart") {
  const Cluster dragonfly = make("dragonfly:9x4x2,device=t4,latency=1us,global-rate=5GB/s");
  CHECK(dragonfly.devices.size() == 72);
  // 72 devices, 9 groups x 6 local cables, 36 pairs of groups.
  CHECK(dragonfly.links.size() == 72 + 54 + 36);
  std::size_t most = 0;
  Routes routes(dragonfly);
  for (std::int32_t a = 0; a < 72; ++a) {
    for (std::int32_t b = 0; b < 72; ++b) {
      most = std::max(most, routes.between(DeviceId{a}, DeviceId{b}).hops.size());
    }
  }
  CHECK(most == 5);  // device, local, global, local, device
  CHECK(way(dragonfly, 0, 71).rate == 5e9);
  // 0 and 1 share a router; between groups one of the links is a global one.
  const Cluster longer = make("dragonfly:9x4x2,device=t4,latency=1us,global-latency=50us");
  CHECK(way(longer, 0, 1).latency_us == testing::approx(2));
  const Way between = way(longer, 0, 71);
  CHECK(between.latency_us == testing::approx(static_cast<double>(between.hops - 1) + 50));
}

TEST_CASE("pcie tree: on one switch, on one socket, across") {
  const Cluster tree = make("pcie-tree:8,device=k80,rate=12GB/s,socket-rate=6GB/s,latency=1us");
  CHECK(way(tree, 0, 1) == Way{2, 2.0, 12e9});
  CHECK(way(tree, 0, 2) == Way{4, 4.0, 12e9});
  CHECK(way(tree, 0, 7) == Way{5, 5.0, 6e9});
}

TEST_CASE("cube mesh: one cable where there is one, PCIe where there is none") {
  const Cluster mesh = make("cube-mesh:8,device=v100-sxm2,rate=20GB/s,latency=1us");
  CHECK(way(mesh, 0, 3) == Way{1, 1.0, 20e9});
  CHECK(way(mesh, 0, 7) == Way{5, 5.0, 6e9});
}

TEST_CASE("cube mesh: 8 V100 have 6 rings of a share of 25 GB/s, 8 P100 have 4 of 20") {
  // As NCCL finds them: 24 cables of V100 = 3 cycles of 8, each both ways; 16 of P100 = 2.
  for (const auto& [name, count, rate] :
       {std::tuple{"dgx-v100", 6U, 25e9 * link_numbers(LinkKind::nvlink2).efficiency},
        std::tuple{"dgx-p100", 4U, 20e9 * link_numbers(LinkKind::nvlink1).efficiency}}) {
    CAPTURE(name);
    std::set<std::size_t> used;
    const std::vector<Ring> rings = rings_of(make(name));
    CHECK(rings.size() == count);
    for (const Ring& ring : rings) {
      CHECK(slowest(ring) == rate);
      for (const Route& route : ring.hops) {
        REQUIRE(route.hops.size() == 1);
        CHECK(used.insert(route.hops[0].index()).second);
      }
    }
  }
}

TEST_CASE("cube mesh: the generator and the file of the DGX-1 wire the same pairs") {
  const auto wires = [](const Cluster& cluster) {
    std::multiset<std::pair<std::int32_t, std::int32_t>> pairs;
    for (const Link& link : cluster.links) {
      if (link.a.kind == Port::Kind::device && link.b.kind == Port::Kind::device) {
        pairs.insert(std::minmax({link.a.index, link.b.index}));
      }
    }
    return pairs;
  };
  CHECK(wires(make("dgx-v100")) == wires(make("cube-mesh:8,device=v100-sxm2")));
  CHECK(wires(make("dgx-p100")) == wires(make("cube-mesh:8,device=p100-sxm2,links=4")));
}

TEST_CASE("rings: machines by hand") {
  // One ring in (machine, GPU) order; InfiniBand is its slowest link.
  const std::vector<Ring> paper = rings_of(make("p100-4x4"));
  REQUIRE(paper.size() == 1);
  CHECK(slowest(paper[0]) == 12e9);
  // The V100 of the second machine are visited along their NVLinks, never over PCIe.
  const Cluster mixed = make("mixed-p100-v100");
  const std::vector<Ring> rings = rings_of(mixed);
  REQUIRE(rings.size() == 1);
  std::size_t direct = 0;
  for (const Route& route : rings[0].hops) direct += route.hops.size() == 1 ? 1 : 0;
  CHECK(direct == 6);
}

}  // namespace
}  // namespace parsim::topologies
