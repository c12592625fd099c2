// Ways of units by cables and pairs of switches are those by pairs of devices.
#include "lowering/unit_ways.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/random.hpp"
#include "topologies/topologies.hpp"

namespace parsim::testing {
namespace {

using Units = std::pair<std::vector<DeviceId>, std::vector<DeviceId>>;
using HopPairs = std::set<std::pair<Hop, Hop>>;

/// Two lists of devices side by side, far apart or nearly the same.
Units random_units(const std::vector<DeviceId>& devices, Random& random) {
  const std::size_t size = 1 + random.below(std::min<std::size_t>(6, devices.size() / 2));
  const std::size_t stride = 1 + random.below(2), last = devices.size() - (size - 1) * stride;
  const std::size_t a = random.below(last), b = random.below(last);
  Units units;
  for (std::size_t i = 0; i < size; ++i) {
    units.first.push_back(devices[a + i * stride]);
    units.second.push_back(devices[b + i * stride]);
  }
  if (random.below(8) == 0) std::swap(units.second.front(), units.second.back());
  return units;
}

/// Pair by pair; the pairs of hops that are at one position.
bool alike(const Cluster& cluster, Routes& routes, const Units& units, HopPairs& hops) {
  const auto& [a, b] = units;
  bool same = true;
  for (std::size_t i = 0; i < a.size(); ++i) {
    for (std::size_t j = 0; j < a.size(); ++j) {
      if (i == j) continue;
      const std::vector<Hop> own = routes.between(a[i], a[j]).hops;
      const std::vector<Hop> other = routes.between(b[i], b[j]).hops;
      same =
          same && own.size() == other.size() &&
          (cluster[a[i]].node == cluster[a[j]].node) == (cluster[b[i]].node == cluster[b[j]].node);
      for (std::size_t h = 0; same && h < own.size(); ++h) {
        const Link &x = cluster[own[h].link], &y = cluster[other[h].link];
        same = x.rate == y.rate && x.latency == y.latency;
        hops.insert({own[h], other[h]});
      }
    }
  }
  return same;
}

TEST_CASE("unit ways: alike, and with the same hops, as they are pair by pair, random units") {
  Random random(1);
  std::size_t same = 0, other = 0;
  for (const std::string call :
       {"nodes:6x4,device=v100-sxm2,intra=50GB/s,inter=10GB/s",
        "nodes:4x4,device=v100-sxm2,intra=50GB/s,inter=10GB/s,nics=4",
        "rail:8x4,device=v100-sxm2,intra=50GB/s,inter=10GB/s,unit=2,oversubscription=2",
        "star:8,device=v100-sxm2,rate=10GB/s,latency=1us", "mixed-p100-v100"}) {
    const Cluster whole = topologies::load_cluster(call, "test");
    const std::vector<DeviceId> devices = devices_of(whole, DeviceKind::gpu);
    for (int i = 0; i < 100; ++i) {
      Cluster cluster = whole;
      const std::size_t odd = random.below(2 * cluster.links.size());
      if (odd < cluster.links.size()) cluster.links[odd].rate.value /= 2;
      const Units units = random_units(devices, random);
      CAPTURE(call);
      CAPTURE(i);
      Routes routes(cluster);
      lowering::UnitWays a(cluster, routes, units.first), b(cluster, routes, units.second);
      HopPairs expected, found;
      const bool wanted = alike(cluster, routes, units, expected);
      CHECK(a.alike(b) == wanted);
      ++(wanted ? same : other);
      if (!wanted) continue;
      CHECK(a.visit_hops(b, [&](Hop own, Hop of_other) {
        found.insert({own, of_other});
        return true;
      }));
      CHECK(found == expected);
    }
  }
  CHECK(same > 150);
  CHECK(other > 100);
}

TEST_CASE("unit ways: one path between switches is found, two are not one") {
  const Cluster star =
      topologies::load_cluster("nodes:3x2,device=v100-sxm2,intra=50GB/s,inter=10GB/s", "test");
  Routes routes(star);
  const auto first = routes.only_cable(DeviceId{0}), last = routes.only_cable(DeviceId{5});
  REQUIRE(first.has_value());
  REQUIRE(last.has_value());
  REQUIRE(routes.only_way(first->to, last->to) != nullptr);
  std::vector<Hop> way{first->hop};
  const std::vector<Hop>& middle = *routes.only_way(first->to, last->to);
  way.insert(way.end(), middle.begin(), middle.end());
  way.push_back(lowering::back(last->hop));
  CHECK(way == routes.between(DeviceId{0}, DeviceId{5}).hops);
  Cluster twice = star;  // a second cable next to the first one of the way
  twice.links.push_back(star[middle[0].link]);
  twice.links.back().name += " again";
  Routes two(twice);
  CHECK(two.only_way(first->to, last->to) == nullptr);
  CHECK_FALSE(Routes(topologies::load_cluster("mixed-p100-v100", "test"))
                  .only_cable(DeviceId{0})
                  .has_value());
}

}  // namespace
}  // namespace parsim::testing
