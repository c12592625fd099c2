#include "sim/folded_rings.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "sim/prepared_dag.hpp"

namespace parsim::sim {

namespace {

/// `unit`'s rings against those of the kept one of its class.
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

bool rings_alike(const ExecDag& dag, PathCache& paths) {
  const AlikeUnits& units = *dag.fold.units;
  std::set<std::int32_t> seen;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpId id{i};
    if (dag.kind(id) != OpKind::collective || !dag.in_each_unit(id)) continue;
    if (!seen.insert(dag.record(id).device).second) continue;
    const std::vector<DeviceId>& group = dag.group(GroupId{dag.record(id).device});
    const GroupRings& first = paths.rings(group);
    std::vector<DeviceId> same(group.size());
    for (const std::size_t u : units.units_like(group[0])) {
      for (std::size_t m = 0; m < group.size(); ++m) same[m] = units.image(group[m], u);
      if (!alike(first, paths.rings(same), units, static_cast<std::int32_t>(u))) return false;
    }
  }
  return true;
}

/// Of transfers in all ranks.
bool pairs_alike(const ExecDag& dag, PathCache& paths) {
  const Cluster& cluster = paths.cluster();
  std::set<std::pair<std::int32_t, std::int32_t>> seen;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpRecord& record = dag.record(OpId{i});
    if (dag.kind(OpId{i}) != OpKind::transfer) continue;
    if (!seen.insert({record.device, record.to}).second) continue;
    const Route first = paths.between(DeviceId{record.device}, DeviceId{record.to});
    const auto within = [&](DeviceId a, DeviceId b) { return cluster[a].node == cluster[b].node; };
    for (std::size_t rank = 1; rank < rank_count(dag, record.device); ++rank) {
      const auto [from, to] = ends(dag, record, rank);
      const Route& way = paths.between(from, to);
      const bool same =
          within(from, to) == within(DeviceId{record.device}, DeviceId{record.to}) &&
          std::equal(way.hops.begin(), way.hops.end(), first.hops.begin(), first.hops.end(),
                     [&](Hop a, Hop b) {
                       const Link &x = cluster[a.link], &y = cluster[b.link];
                       return x.rate == y.rate && x.latency == y.latency && x.kind == y.kind;
                     });
      if (!same) return false;
    }
  }
  return true;
}

}  // namespace

bool ways_alike(const ExecDag& dag, PathCache& paths) {
  return (dag.fold.units == nullptr || rings_alike(dag, paths)) &&
         (dag.fold.ranks == nullptr || pairs_alike(dag, paths));
}

}  // namespace parsim::sim
