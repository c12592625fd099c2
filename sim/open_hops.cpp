#include "sim/open_hops.hpp"

#include <algorithm>
#include <compare>
#include <cstdint>
#include <limits>
#include <unordered_set>
#include <utility>

#include "core/dag_traffic.hpp"
#include "sim/color.hpp"

namespace parsim::sim {

namespace {

/// A list of flows that a queue starts.
struct Queued {
  Color queue = 0;
  std::size_t list = 0;
  bool within = false;
  friend auto operator<=>(const Queued&, const Queued&) = default;
};

/// By Hop::index(): how often flows cross it at one time, at most. Operations that share a queue
/// follow one another.
std::vector<std::uint32_t> most_crossings(const ExecDag& dag, const Cluster& cluster,
                                          const RouteTable& table,
                                          std::span<const Communication> communications,
                                          const FlowLists& lists) {
  const AlikeUnits* const units = dag.fold.units.get();
  std::vector<Queued> queued;  // those of one queue with the same flows, often, once
  std::unordered_set<Color> seen;
  std::vector<Queue> occupied;
  for (const Communication& communication : communications) {
    queues(dag, communication.op, occupied);
    const Queue queue = occupied.front();
    const Color color =
        mix(mix(static_cast<Color>(queue.device.value), static_cast<Color>(queue.queue)),
            static_cast<Color>(communication.within));
    if (seen.insert(mix(color, static_cast<Color>(communication.list))).second)
      queued.push_back({color, communication.list, communication.within});
  }
  std::sort(queued.begin(), queued.end());
  std::vector<std::uint32_t> all(2 * cluster.links.size()), within(all.size());
  std::vector<std::uint32_t> now(all.size()), most(all.size());  // of a list, of a queue
  std::vector<std::size_t> crossed, crossed_by_queue;
  for (std::size_t i = 0; i < queued.size(); ++i) {
    crossed.clear();
    for (const OpFlow& flow : lists.of(queued[i].list)) {
      for (const Hop hop : table.routes[flow.route]->hops) {
        if (now[hop.index()]++ == 0) crossed.push_back(hop.index());
      }
    }
    for (const std::size_t hop : crossed) {
      if (most[hop] == 0) crossed_by_queue.push_back(hop);
      most[hop] = std::max(most[hop], std::exchange(now[hop], 0));
    }
    if (i + 1 < queued.size() && queued[i + 1].queue == queued[i].queue) continue;
    for (const std::size_t hop : crossed_by_queue)
      (queued[i].within ? within : all)[hop] += std::exchange(most[hop], 0);
    crossed_by_queue.clear();
  }
  for (std::size_t i = 0; units != nullptr && i < all.size(); ++i) {
    if (units->hop_unit[i] >= 0) all[i] += within[units->hop_origin[i]];
  }
  return all;
}

}  // namespace

RouteHops route_hops(const ExecDag& dag, const Cluster& cluster, const RouteTable& table,
                     std::span<const Communication> communications, const FlowLists& lists,
                     bool steady) {
  const std::vector<std::uint32_t> most =
      most_crossings(dag, cluster, table, communications, lists);
  RouteHops all;
  for (const Route* route : table.routes) {
    double slowest = std::numeric_limits<double>::infinity();
    for (const Hop hop : route->hops) slowest = std::min(slowest, cluster[hop.link].rate.value);
    for (const Hop hop : route->hops)
      all.open.push_back(!steady || cluster[hop.link].rate.value < most[hop.index()] * slowest);
    all.slowest.push_back(mix(0, slowest));
  }
  return all;
}

}  // namespace parsim::sim
