#include "core/routes.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "core/errors.hpp"

namespace parsim {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

/// Clusters by hand: n devices in one node by default, then switches, then links.
struct Sketch {
  Cluster cluster;

  explicit Sketch(std::int32_t devices, std::int32_t switches) {
    cluster.name = "sketch";
    DeviceModel model;
    model.name = "gpu";
    cluster.models = {model};
    cluster.nodes = {{"node"}};
    for (std::int32_t i = 0; i < devices; ++i) {
      cluster.devices.push_back({"d" + std::to_string(i), 0, NodeId{0}, {1}});
    }
    for (std::int32_t i = 0; i < switches; ++i) {
      cluster.switches.push_back({"s" + std::to_string(i), {}});
    }
  }
  static Port d(std::int32_t i) { return Port::of(DeviceId{i}); }
  static Port s(std::int32_t i) { return Port::of(SwitchId{i}); }
  Hop join(Port a, Port b, double rate = 1e9, double latency = 1e-6) {
    const LinkId id{cluster.links.size()};
    cluster.links.push_back({"l" + std::to_string(id.value), a, b, {rate}, Seconds{latency}});
    return {id, false};
  }
};

Hop back(Hop hop) { return {hop.link, !hop.backwards}; }

std::vector<Hop> hops(Routes& routes, std::int32_t from, std::int32_t to) {
  return routes.between(DeviceId{from}, DeviceId{to}).hops;
}

TEST_CASE("routes: through a switch are two links, and cost two latencies") {
  Sketch sketch(2, 1);
  const Hop up = sketch.join(Sketch::d(0), Sketch::s(0), 2e9, 1e-6);
  const Hop down = sketch.join(Sketch::s(0), Sketch::d(1), 1e9, 3e-6);
  Routes routes(sketch.cluster);
  const Route& there = routes.between(DeviceId{0}, DeviceId{1});
  CHECK(there.hops == std::vector{up, down});
  CHECK(there.latency == Seconds{1e-6 + 3e-6});
  CHECK(there.rate == BytesPerSecond{1e9});
  CHECK(hops(routes, 1, 0) == std::vector{back(down), back(up)});
}

TEST_CASE("routes: from a device to itself is nothing") {
  const Sketch sketch(1, 0);
  Routes routes(sketch.cluster);
  const Route& route = routes.between(DeviceId{0}, DeviceId{0});
  CHECK(route.hops.empty());
  CHECK(route.latency == Seconds{0});
  CHECK(route.rate == BytesPerSecond{infinite});
}

TEST_CASE("routes: a device forwards nothing for others") {
  Sketch sketch(3, 2);
  sketch.join(Sketch::d(0), Sketch::d(1));
  sketch.join(Sketch::d(1), Sketch::d(2));
  Routes cut(sketch.cluster);
  CHECK_THROWS_WITH_AS((void)cut.between(DeviceId{0}, DeviceId{2}),
                       "cluster 'sketch': no path from device 'd0' to device 'd2'; join them by a "
                       "link or by switches",
                       InputError);
  const Hop a = sketch.join(Sketch::d(0), Sketch::s(0));
  const Hop b = sketch.join(Sketch::s(0), Sketch::s(1));
  const Hop c = sketch.join(Sketch::s(1), Sketch::d(2));
  Routes joined(sketch.cluster);
  CHECK(hops(joined, 0, 2) == std::vector{a, b, c});
}

TEST_CASE("routes: fewest hops first, then width, then latency") {
  Sketch sketch(2, 4);
  // Wide but three hops.
  sketch.join(Sketch::d(0), Sketch::s(0), 9e9);
  sketch.join(Sketch::s(0), Sketch::s(1), 9e9);
  sketch.join(Sketch::s(1), Sketch::d(1), 9e9);
  // Two hops: quick and narrow, or wide and slow.
  sketch.join(Sketch::d(0), Sketch::s(2), 1e9, 0);
  sketch.join(Sketch::s(2), Sketch::d(1), 4e9, 0);
  const Hop wide = sketch.join(Sketch::d(0), Sketch::s(3), 2e9, 5e-6);
  const Hop slow = sketch.join(Sketch::s(3), Sketch::d(1), 2e9, 5e-6);
  Routes routes(sketch.cluster);
  CHECK(hops(routes, 0, 1) == std::vector{wide, slow});
}

TEST_CASE("routes: where a later link narrows both, the lower latency wins, not the width so far") {
  Sketch sketch(2, 3);
  sketch.join(Sketch::d(0), Sketch::s(0), 9e9, 5e-6);
  const Hop quick = sketch.join(Sketch::d(0), Sketch::s(1), 3e9, 1e-6);
  sketch.join(Sketch::s(0), Sketch::s(2), 9e9, 1e-6);
  const Hop on = sketch.join(Sketch::s(1), Sketch::s(2), 3e9, 1e-6);
  const Hop narrow = sketch.join(Sketch::s(2), Sketch::d(1), 1e9, 1e-6);
  Routes routes(sketch.cluster);
  CHECK(hops(routes, 0, 1) == std::vector{quick, on, narrow});
}

TEST_CASE("routes: a shift of all devices takes each parallel cable once") {
  // Four devices on either side of four parallel trunks.
  Sketch sketch(8, 2);
  for (std::int32_t i = 0; i < 8; ++i) sketch.join(Sketch::d(i), Sketch::s(i / 4));
  for (std::int32_t i = 0; i < 4; ++i) sketch.join(Sketch::s(0), Sketch::s(1));
  Routes routes(sketch.cluster);
  for (std::int32_t shift = 0; shift < 4; ++shift) {
    std::set<LinkId> trunks;
    for (std::int32_t i = 0; i < 4; ++i) {
      trunks.insert(hops(routes, i, 4 + (i + shift) % 4).at(1).link);
    }
    CHECK(trunks.size() == 4);
  }
}

/// Hops, widest bottleneck and least latency at that width, by Floyd-Warshall-like relaxation over
/// walks of growing length: slow, and independent of the search.
struct Best {
  std::size_t hops = 0;
  double rate = 0, latency = infinite;
};
Best brute_force(const Cluster& cluster, std::int32_t from, std::int32_t to) {
  const std::size_t devices = cluster.devices.size();
  const std::size_t vertices = devices + cluster.switches.size();
  const auto vertex = [&](Port port) {
    return static_cast<std::size_t>(port.index) + (port.kind == Port::Kind::device ? 0 : devices);
  };
  // Over links of at least `least`, the least latency with exactly `length` hops.
  const auto latency = [&](double least, std::size_t length) {
    std::vector<double> at(vertices, infinite);
    at[static_cast<std::size_t>(from)] = 0;
    for (std::size_t i = 0; i < length; ++i) {
      std::vector<double> next(vertices, infinite);
      for (const Link& link : cluster.links) {
        if (link.rate.value < least) continue;
        const auto relax = [&](std::size_t a, std::size_t b) {
          const bool forwards = a >= devices || i == 0;
          if (forwards) next[b] = std::min(next[b], at[a] + link.latency.count());
        };
        relax(vertex(link.a), vertex(link.b));
        relax(vertex(link.b), vertex(link.a));
      }
      at = std::move(next);
    }
    return at[static_cast<std::size_t>(to)];
  };
  std::set<double> rates{0};
  for (const Link& link : cluster.links) rates.insert(link.rate.value);
  for (std::size_t length = 1; length <= vertices; ++length) {
    if (latency(0, length) == infinite) continue;
    Best best{length, 0, infinite};
    for (const double rate : rates) {
      const double found = latency(rate, length);
      if (found < infinite) best = {length, rate, found};
    }
    return best;
  }
  return {};
}

TEST_CASE("routes: pairs of two switches are, asked one after another, as each asked alone") {
  // Three switches of three devices with three ways between each two of them; devices 4 and 5 have
  // slower cables, which let the narrower way count, too.
  Sketch net(9, 3);
  for (std::int32_t d = 0; d < 9; ++d) {
    (void)net.join(net.d(d), net.s(d / 3), d == 4 || d == 5 ? 1e9 : 9e9);
  }
  for (const auto& [a, b] : {std::pair{0, 1}, std::pair{1, 2}, std::pair{0, 2}}) {
    for (const double rate : {2e9, 8e9, 8e9}) (void)net.join(net.s(a), net.s(b), rate);
  }
  Routes all(net.cluster);
  for (int from = 0; from < 9; ++from) {
    for (int to = 0; to < 9; ++to) {
      Routes alone(net.cluster);
      const Route& one = all.between(DeviceId{from}, DeviceId{to});
      const Route& same = alone.between(DeviceId{from}, DeviceId{to});
      CHECK(one.hops == same.hops);
      CHECK(one.latency == same.latency);
      CHECK(one.rate == same.rate);
    }
  }
}

TEST_CASE("routes: as good as brute force on random clusters, and real paths") {
  CHECK(rc::check("routes", [] {
    const auto devices = *rc::gen::inRange(2, 5), switches = *rc::gen::inRange(0, 6);
    Sketch sketch(devices, switches);
    const auto links = *rc::gen::inRange(0, 16);
    for (int i = 0; i < links; ++i) {
      const auto a = *rc::gen::inRange(0, devices + switches);
      const auto b = *rc::gen::inRange(0, devices + switches);
      if (a == b) continue;
      const auto port = [&](int v) { return v < devices ? Sketch::d(v) : Sketch::s(v - devices); };
      sketch.join(port(a), port(b), *rc::gen::inRange(1, 4), *rc::gen::inRange(0, 4));
    }
    Routes routes(sketch.cluster);
    for (std::int32_t from = 0; from < devices; ++from) {
      for (std::int32_t to = 0; to < devices; ++to) {
        if (from == to) continue;
        const Best best = brute_force(sketch.cluster, from, to);
        if (best.hops == 0) {
          RC_ASSERT_THROWS_AS((void)routes.between(DeviceId{from}, DeviceId{to}), InputError);
          continue;
        }
        const Route& route = routes.between(DeviceId{from}, DeviceId{to});
        RC_ASSERT(route.hops.size() == best.hops);
        RC_ASSERT(route.rate.value == best.rate);
        RC_ASSERT(route.latency.count() == best.latency);
        Port at = Sketch::d(from);
        double rate = infinite, latency = 0;
        for (const Hop hop : route.hops) {
          const Link& link = sketch.cluster[hop.link];
          RC_ASSERT((hop.backwards ? link.b : link.a) == at);
          at = hop.backwards ? link.a : link.b;
          rate = std::min(rate, link.rate.value);
          latency += link.latency.count();
        }
        RC_ASSERT(at == Sketch::d(to));
        RC_ASSERT(rate == route.rate.value);
        RC_ASSERT(latency == route.latency.count());
      }
    }
  }));
}

std::vector<DeviceId> all(const Cluster& cluster) { return devices_of(cluster, DeviceKind::gpu); }

/// Every device once, every hop from a device to the next; returns how often each directed link is
/// used by all rings together.
std::map<std::size_t, int> check_rings(const Cluster& cluster, const std::vector<Ring>& rings,
                                       std::vector<DeviceId> group) {
  std::map<std::size_t, int> use;
  for (const Ring& ring : rings) {
    REQUIRE(ring.hops.size() == ring.devices.size());
    std::vector<DeviceId> sorted = ring.devices;
    std::sort(sorted.begin(), sorted.end());
    std::sort(group.begin(), group.end());
    CHECK(sorted == group);
    for (std::size_t i = 0; i < ring.devices.size(); ++i) {
      Port at = Port::of(ring.devices[i]);
      for (const Hop hop : ring.hops[i].hops) {
        const Link& link = cluster[hop.link];
        CHECK((hop.backwards ? link.b : link.a) == at);
        at = hop.backwards ? link.a : link.b;
        ++use[hop.index()];
      }
      CHECK(at == Port::of(ring.devices[(i + 1) % ring.devices.size()]));
    }
  }
  return use;
}

TEST_CASE("rings: none for one device, one in id order on a switch") {
  Sketch sketch(4, 1);
  for (std::int32_t i = 0; i < 4; ++i) sketch.join(Sketch::d(i), Sketch::s(0));
  Routes routes(sketch.cluster);
  CHECK(edge_disjoint_rings(sketch.cluster, routes, std::vector{DeviceId{2}}).empty());
  const std::vector<DeviceId> shuffled{DeviceId{3}, DeviceId{0}, DeviceId{2}, DeviceId{1}};
  const auto rings = edge_disjoint_rings(sketch.cluster, routes, shuffled);
  REQUIRE(rings.size() == 1);
  CHECK(rings[0].devices == all(sketch.cluster));
  for (const auto& [link, times] : check_rings(sketch.cluster, rings, shuffled)) CHECK(times == 1);
}

TEST_CASE("rings: two devices have one per cable, there and back") {
  Sketch sketch(2, 0);
  const Hop first = sketch.join(Sketch::d(0), Sketch::d(1));
  const Hop second = sketch.join(Sketch::d(1), Sketch::d(0));
  Routes routes(sketch.cluster);
  const auto rings = edge_disjoint_rings(sketch.cluster, routes, all(sketch.cluster));
  REQUIRE(rings.size() == 2);
  CHECK(rings[0].hops[0].hops == std::vector{first});
  CHECK(rings[0].hops[1].hops == std::vector{back(first)});
  CHECK(rings[1].hops[0].hops == std::vector{back(second)});
  CHECK(rings[1].hops[1].hops == std::vector{second});
  check_rings(sketch.cluster, rings, all(sketch.cluster));
}

TEST_CASE("rings: a complete graph of five decomposes into two cycles, both ways") {
  // K5 has degree 4, so two cycles use all of its 10 edges (Walecki's theorem).
  Sketch sketch(5, 0);
  for (std::int32_t a = 0; a < 5; ++a) {
    for (std::int32_t b = 0; b < a; ++b) sketch.join(Sketch::d(a), Sketch::d(b));
  }
  Routes routes(sketch.cluster);
  const auto rings = edge_disjoint_rings(sketch.cluster, routes, all(sketch.cluster));
  CHECK(rings.size() == 4);
  const auto use = check_rings(sketch.cluster, rings, all(sketch.cluster));
  CHECK(use.size() == 20);
  for (const auto& [hop, times] : use) CHECK(times == 1);
}

TEST_CASE("rings: cables that do not close leave one ring over the routes") {
  Sketch sketch(3, 1);
  sketch.join(Sketch::d(0), Sketch::d(1), 9e9);
  for (std::int32_t i = 0; i < 3; ++i) sketch.join(Sketch::d(i), Sketch::s(0));
  Routes routes(sketch.cluster);
  const auto rings = edge_disjoint_rings(sketch.cluster, routes, all(sketch.cluster));
  REQUIRE(rings.size() == 1);
  CHECK(rings[0].hops[0].rate == BytesPerSecond{9e9});
  CHECK(rings[0].hops[1].hops.size() == 2);
  check_rings(sketch.cluster, rings, all(sketch.cluster));
}

TEST_CASE("rings: a graph without a cycle through all is given up in bounded time") {
  // A bipartite graph of 7 + 9 devices: no such cycle, and exponentially many ways to try.
  Sketch sketch(16, 1);
  for (std::int32_t a = 0; a < 7; ++a) {
    for (std::int32_t b = 7; b < 16; ++b) sketch.join(Sketch::d(a), Sketch::d(b));
  }
  for (std::int32_t i = 0; i < 16; ++i) sketch.join(Sketch::d(i), Sketch::s(0));
  Routes routes(sketch.cluster);
  CHECK(edge_disjoint_rings(sketch.cluster, routes, all(sketch.cluster)).size() == 1);
}

TEST_CASE("rings: parallel cables out of a machine carry one ring each") {
  // Two machines of four devices, each behind a switch with two cables to the network.
  Sketch sketch(8, 3);
  sketch.cluster.nodes.push_back({"other"});
  for (std::int32_t i = 0; i < 8; ++i) {
    sketch.cluster.devices[static_cast<std::size_t>(i)].node = NodeId{i / 4};
    sketch.join(Sketch::d(i), Sketch::s(i / 4), 10e9);
  }
  for (std::int32_t machine = 0; machine < 2; ++machine) {
    sketch.cluster.switches[static_cast<std::size_t>(machine)].node = NodeId{machine};
    for (int cable = 0; cable < 2; ++cable) sketch.join(Sketch::s(machine), Sketch::s(2));
  }
  Routes routes(sketch.cluster);
  const auto rings = edge_disjoint_rings(sketch.cluster, routes, all(sketch.cluster));
  REQUIRE(rings.size() == 2);
  const auto use = check_rings(sketch.cluster, rings, all(sketch.cluster));
  for (const auto& [hop, times] : use) {
    // Links 0 to 7 are the devices' own; the rest leave the machines and are used once.
    if (hop >= 16) CHECK(times == 1);
  }
}

}  // namespace
}  // namespace parsim
