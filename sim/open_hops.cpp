#include "sim/open_hops.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <unordered_map>
#include <unordered_set>

#include "core/dag_traffic.hpp"
#include "sim/color.hpp"

namespace parsim::sim {

namespace {

/// By Hop::index(): how often flows cross it at one time, at most. Operations that share a queue
/// follow one another.
std::vector<std::uint32_t> most_crossings(const ExecDag& dag, const Cluster& cluster,
                                          const RouteTable& table,
                                          std::span<const Communication> communications,
                                          const FlowLists& lists) {
  const AlikeUnits* const units = dag.fold.units.get();
  std::unordered_map<Color, std::uint32_t> most_of;  // by queue and hop
  std::unordered_set<Color> seen;                    // queues with the same flows, often
  std::vector<Queue> occupied;
  std::vector<std::size_t> crossed;
  std::vector<std::uint32_t> all(2 * cluster.links.size()), within(all.size());
  for (const Communication& communication : communications) {
    queues(dag, communication.op, occupied);
    const Queue queue = occupied.front();
    const Color color =
        mix(mix(static_cast<Color>(queue.device.value), static_cast<Color>(queue.queue)),
            static_cast<Color>(communication.within));
    if (!seen.insert(mix(color, static_cast<Color>(communication.list))).second) continue;
    crossed.clear();
    for (const OpFlow& flow : lists.of(communication.list)) {
      for (const Hop hop : table.routes[flow.route]->hops) crossed.push_back(hop.index());
    }
    std::sort(crossed.begin(), crossed.end());
    for (std::size_t i = 0, end = 0; i < crossed.size(); i = end) {
      while (end < crossed.size() && crossed[end] == crossed[i]) ++end;
      std::uint32_t& most = most_of[mix(color, static_cast<Color>(crossed[i]))];
      const auto now = static_cast<std::uint32_t>(end - i);
      if (now <= most) continue;
      (communication.within ? within : all)[crossed[i]] += now - most;
      most = now;
    }
  }
  for (std::size_t i = 0; units != nullptr && i < all.size(); ++i) {
    if (units->hop_unit[i] >= 0) all[i] += within[units->hop_origin[i]];
  }
  return all;
}

}  // namespace

std::vector<bool> open_hops(const ExecDag& dag, const Cluster& cluster, const RouteTable& table,
                            std::span<const Communication> communications, const FlowLists& lists,
                            bool steady) {
  const std::vector<std::uint32_t> most =
      most_crossings(dag, cluster, table, communications, lists);
  std::vector<bool> open;
  for (const Route* route : table.routes) {
    double slowest = std::numeric_limits<double>::infinity();
    for (const Hop hop : route->hops) slowest = std::min(slowest, cluster[hop.link].rate.value);
    for (const Hop hop : route->hops)
      open.push_back(!steady || cluster[hop.link].rate.value < most[hop.index()] * slowest);
  }
  return open;
}

}  // namespace parsim::sim
