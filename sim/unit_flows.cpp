#include "sim/unit_flows.hpp"

#include <algorithm>
#include <map>
#include <set>

namespace parsim::sim {

UnitFlows::UnitFlows(const AlikeUnits& units, RouteTable& table)
    : units_(units), table_(table), hops_(units.count()) {
  for (std::size_t i = 0; i < units.hop_unit.size(); ++i) {
    if (units.hop_unit[i] < 0) continue;
    hops_[static_cast<std::size_t>(units.hop_unit[i])].emplace(units.hop_origin[i],
                                                               Hop{LinkId{i / 2}, i % 2 == 1});
  }
}

std::size_t UnitFlows::image(std::size_t route, std::size_t unit) {
  const std::uint64_t key = std::uint64_t{route} * units_.count() + unit;
  const auto [at, fresh] = images_.try_emplace(key, table_.routes.size());
  if (!fresh) return at->second;
  Route copy = *table_.routes[route];
  for (Hop& hop : copy.hops) hop = hops_[unit].at(static_cast<std::uint32_t>(hop.index()));
  table_.routes.push_back(&table_.whole_routes.emplace_back(std::move(copy)));
  return at->second;
}

void UnitFlows::add_others(const ExecDag& dag, OpId op, OpFlows& flows) {
  const std::int32_t device = dag.record(op).device;
  const DeviceId first =
      dag.kind(op) == OpKind::collective ? dag.group(GroupId{device})[0] : DeviceId{device};
  const std::vector<std::size_t>& units = units_.units_like(first);
  const std::size_t own = flows.flows.size();
  for (std::size_t u = 1; u < units.size(); ++u) {
    for (std::size_t i = 0; i < own; ++i) {
      OpFlow flow = flows.flows[i];
      flow.route = image(flow.route, units[u]);
      flows.flows.push_back(flow);
    }
  }
  std::stable_sort(flows.flows.begin(), flows.flows.end(),
                   [](const OpFlow& a, const OpFlow& b) { return a.wait < b.wait; });
}

std::vector<std::vector<std::uint32_t>> flows_that_end_together(
    const std::vector<std::int32_t>& kinds, const std::vector<std::uint32_t>& runs_as) {
  std::map<std::int32_t, std::set<std::uint32_t>> by_kind;
  for (std::size_t i = 0; i < kinds.size(); ++i) by_kind[kinds[i]].insert(runs_as[i]);
  std::set<std::vector<std::uint32_t>> different;
  for (const auto& [kind, flows] : by_kind) different.emplace(flows.begin(), flows.end());
  if (different.size() < 2) return {};
  return {different.begin(), different.end()};
}

}  // namespace parsim::sim
