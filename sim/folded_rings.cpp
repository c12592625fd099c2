#include "sim/folded_rings.hpp"

#include <algorithm>
#include <set>

namespace parsim::sim {

namespace {

/// `unit`'s rings against those of the first one.
bool alike(const GroupRings& first, const GroupRings& other, const AlikeUnits& units,
           std::int32_t unit) {
  if (first.members != other.members || first.weights != other.weights) return false;
  for (std::size_t r = 0; r < first.rings.size(); ++r) {
    const std::vector<Route>&ways = first.rings[r].hops, &same = other.rings[r].hops;
    const bool equal = std::equal(
        ways.begin(), ways.end(), same.begin(), same.end(), [&](const Route& a, const Route& b) {
          return std::equal(a.hops.begin(), a.hops.end(), b.hops.begin(), b.hops.end(),
                            [&](Hop x, Hop y) {
                              return units.hop_unit[y.index()] == unit &&
                                     units.hop_origin[y.index()] == x.index();
                            });
        });
    if (!equal) return false;
  }
  return true;
}

}  // namespace

bool rings_alike(const ExecDag& dag, PathCache& paths) {
  const AlikeUnits& units = *dag.units;
  std::set<std::int32_t> seen;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpId id{i};
    if (dag.kind(id) != OpKind::collective || dag.count(id) == 1) continue;
    if (!seen.insert(dag.record(id).device).second) continue;
    const std::vector<DeviceId>& group = dag.group(GroupId{dag.record(id).device});
    const GroupRings& first = paths.rings(group);
    std::vector<DeviceId> same(group.size());
    for (std::size_t u = 0; u < units.count(); ++u) {
      for (std::size_t m = 0; m < group.size(); ++m) {
        const auto position = static_cast<std::size_t>(units.position_of[group[m].index()]);
        same[m] = units.devices[u][position];
      }
      if (!alike(first, paths.rings(same), units, static_cast<std::int32_t>(u))) return false;
    }
  }
  return true;
}

}  // namespace parsim::sim
