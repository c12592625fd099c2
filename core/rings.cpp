#include <algorithm>
#include <map>

#include "core/errors.hpp"
#include "core/routes.hpp"

namespace parsim {

namespace {

/// Positions of a group's devices, in the order in which a cycle visits them.
using Cycle = std::vector<std::size_t>;

/// Edge-disjoint Hamiltonian cycles over the direct cables of a small group, by backtracking: next
/// is the neighbour with the most free cables, so that double cables are used up evenly (a cube
/// mesh of V100 decomposes without a single step back), then the smaller position.
class CyclePacking {
 public:
  explicit CyclePacking(std::vector<std::vector<std::size_t>> free_cables)
      : free_(std::move(free_cables)) {
    start();
  }

  [[nodiscard]] const std::vector<Cycle>& best() const { return best_; }

 private:
  // A few milliseconds. Without a bound a hostile graph takes exponential time; when it runs out,
  // the best packing so far stands.
  static constexpr std::size_t most_steps = 50'000;

  /// Cycles that the free cables could still give: every cycle needs two at every device.
  [[nodiscard]] std::size_t at_most_more() const {
    std::size_t most = free_.size();
    for (const auto& row : free_) {
      std::size_t sum = 0;
      for (const std::size_t cables : row) sum += cables;
      most = std::min(most, sum / 2);
    }
    return most;
  }

  void start() {
    if (cycles_.size() > best_.size()) best_ = cycles_;
    if (cycles_.size() + at_most_more() <= best_.size()) return;
    Cycle cycle{0};
    std::vector<bool> visited(free_.size(), false);
    visited[0] = true;
    extend(cycle, visited);
  }

  void extend(Cycle& cycle, std::vector<bool>& visited) {
    if (++steps_ > most_steps) return;
    const std::size_t from = cycle.back();
    if (cycle.size() == free_.size()) {
      if (free_[from][0] == 0) return;
      use(from, 0, -1);
      cycles_.push_back(cycle);
      start();
      cycles_.pop_back();
      use(from, 0, +1);
      return;
    }
    std::vector<std::size_t> next;
    for (std::size_t to = 0; to < free_.size(); ++to) {
      if (!visited[to] && free_[from][to] > 0) next.push_back(to);
    }
    std::stable_sort(next.begin(), next.end(),
                     [&](std::size_t a, std::size_t b) { return free_[from][a] > free_[from][b]; });
    for (const std::size_t to : next) {
      visited[to] = true;
      cycle.push_back(to);
      use(from, to, -1);
      extend(cycle, visited);
      use(from, to, +1);
      cycle.pop_back();
      visited[to] = false;
      if (steps_ > most_steps) return;
    }
  }

  void use(std::size_t a, std::size_t b, int change) {
    free_[a][b] += static_cast<std::size_t>(change);
    free_[b][a] += static_cast<std::size_t>(change);
  }

  std::vector<std::vector<std::size_t>> free_;  ///< unused cables between two positions
  std::vector<Cycle> cycles_, best_;
  std::size_t steps_ = 0;
};

/// A cable as seen from the device with the smaller position.
using Cables = std::map<std::pair<std::size_t, std::size_t>, std::vector<Hop>>;

/// Direct cables within the group by (smaller, larger) position, fastest first.
Cables direct_cables(const Cluster& cluster, std::span<const DeviceId> group) {
  std::map<std::int32_t, std::size_t> position;
  for (std::size_t i = 0; i < group.size(); ++i) position[group[i].value] = i;
  Cables cables;
  for (std::size_t i = 0; i < cluster.links.size(); ++i) {
    const Link& link = cluster.links[i];
    if (link.a.kind != Port::Kind::device || link.b.kind != Port::Kind::device) continue;
    const auto a = position.find(link.a.index), b = position.find(link.b.index);
    if (a == position.end() || b == position.end()) continue;
    const bool backwards = a->second > b->second;
    cables[std::minmax(a->second, b->second)].push_back({LinkId{i}, backwards});
  }
  for (auto& [ends, hops] : cables) {
    std::stable_sort(hops.begin(), hops.end(), [&](const Hop& x, const Hop& y) {
      return cluster[x.link].rate > cluster[y.link].rate;
    });
  }
  return cables;
}

// Larger groups are wired through switches; and the search would take its whole budget.
constexpr std::size_t most_wired = 16;

std::vector<Cycle> find_cycles(const Cables& cables, std::size_t count) {
  std::vector<std::vector<std::size_t>> number(count, std::vector<std::size_t>(count, 0));
  for (const auto& [ends, hops] : cables) {
    number[ends.first][ends.second] = number[ends.second][ends.first] = hops.size();
  }
  return CyclePacking(std::move(number)).best();
}

Route over(const Cluster& cluster, Hop hop) {
  return {{hop}, cluster[hop.link].latency, cluster[hop.link].rate};
}

/// Rings over single cables, each used once in each direction; empty if the cables do not close.
std::vector<Ring> cable_rings(const Cluster& cluster, std::span<const DeviceId> group) {
  Cables cables = direct_cables(cluster, group);
  std::vector<Ring> rings;
  if (group.size() == 2) {
    // There and back over one cable is already a ring, and uses both its directions.
    for (const Hop hop : cables[{0, 1}]) {
      rings.push_back(
          {{group[0], group[1]}, {over(cluster, hop), over(cluster, {hop.link, !hop.backwards})}});
    }
    return rings;
  }
  for (const Cycle& cycle : find_cycles(cables, group.size())) {
    Ring there, back;
    for (std::size_t i = 0; i < cycle.size(); ++i) {
      const std::size_t from = cycle[i], to = cycle[(i + 1) % cycle.size()];
      std::vector<Hop>& free = cables[std::minmax(from, to)];
      ensure(!free.empty(), "a ring is given cables of its own");
      const Hop hop = free.front();
      free.erase(free.begin());
      const bool backwards = from > to ? !hop.backwards : hop.backwards;
      there.devices.push_back(group[from]);
      there.hops.push_back(over(cluster, {hop.link, backwards}));
      back.devices.push_back(group[to]);
      back.hops.push_back(over(cluster, {hop.link, !backwards}));
    }
    std::reverse(back.devices.begin(), back.devices.end());
    std::reverse(back.hops.begin(), back.hops.end());
    rings.push_back(std::move(there));
    rings.push_back(std::move(back));
  }
  return rings;
}

/// One machine's part of the group, along its own cables where they close to a cycle, so that a
/// ring may begin anywhere in it.
std::vector<DeviceId> machine_order(const Cluster& cluster, std::vector<DeviceId> devices) {
  if (devices.size() < 3 || devices.size() > most_wired) return devices;
  const std::vector<Cycle> cycles = find_cycles(direct_cables(cluster, devices), devices.size());
  if (cycles.empty()) return devices;
  std::vector<DeviceId> order;
  for (const std::size_t i : cycles.front()) order.push_back(devices[i]);
  return order;
}

/// The first link of a route that leaves the machine where the route begins: its network card.
LinkId card_of(const Cluster& cluster, const Route& route, NodeId machine) {
  for (const Hop& hop : route.hops) {
    const Link& link = cluster[hop.link];
    const Port far = hop.backwards ? link.a : link.b;
    const auto index = static_cast<std::size_t>(far.index);
    const NodeId node =
        far.kind == Port::Kind::device ? cluster.devices[index].node : cluster.switches[index].node;
    if (node != machine) return hop.link;
  }
  ensure(false, "a route to another machine leaves its own");
  return {};
}

/// Positions in `order` at which a ring may leave the machine for `next`: one for each card, by
/// link id.
std::vector<std::size_t> ways_out(const Cluster& cluster, Routes& routes,
                                  const std::vector<DeviceId>& order,
                                  const std::vector<DeviceId>& next) {
  std::map<LinkId, std::size_t> last;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const Route& route = routes.between(order[i], next[(i + 1) % next.size()]);
    last[card_of(cluster, route, cluster[order[i]].node)] = i;
  }
  std::vector<std::size_t> positions;
  for (const auto& [card, position] : last) positions.push_back(position);
  return positions;
}

void close(Ring& ring, Routes& routes) {
  for (std::size_t i = 0; i < ring.devices.size(); ++i) {
    const DeviceId next = ring.devices[(i + 1) % ring.devices.size()];
    ring.hops.push_back(routes.between(ring.devices[i], next));
  }
}

}  // namespace

std::vector<Ring> edge_disjoint_rings(const Cluster& cluster, Routes& routes,
                                      std::span<const DeviceId> group) {
  std::vector<DeviceId> members(group.begin(), group.end());
  std::sort(members.begin(), members.end(), [&](DeviceId a, DeviceId b) {
    return std::pair(cluster[a].node, a) < std::pair(cluster[b].node, b);
  });
  if (members.size() < 2) return {};
  if (members.size() <= most_wired) {
    std::vector<Ring> rings = cable_rings(cluster, members);
    if (!rings.empty()) return rings;
  }
  std::vector<std::vector<DeviceId>> machines;
  for (const DeviceId device : members) {
    if (machines.empty() || cluster[machines.back().back()].node != cluster[device].node) {
      machines.emplace_back();
    }
    machines.back().push_back(device);
  }
  if (machines.size() == 1) {
    Ring ring{std::move(members), {}};
    close(ring, routes);
    return {std::move(ring)};
  }
  for (auto& machine : machines) machine = machine_order(cluster, std::move(machine));
  std::vector<std::vector<std::size_t>> leave;
  for (std::size_t i = 0; i < machines.size(); ++i) {
    leave.push_back(ways_out(cluster, routes, machines[i], machines[(i + 1) % machines.size()]));
  }
  std::size_t count = leave.front().size();
  for (const auto& positions : leave) count = std::min(count, positions.size());
  std::vector<Ring> rings(count);
  for (std::size_t j = 0; j < count; ++j) {
    for (std::size_t i = 0; i < machines.size(); ++i) {
      const std::vector<DeviceId>& order = machines[i];
      const std::size_t last = leave[i][j * leave[i].size() / count];
      for (std::size_t k = 1; k <= order.size(); ++k) {
        rings[j].devices.push_back(order[(last + k) % order.size()]);
      }
    }
    close(rings[j], routes);
  }
  return rings;
}

}  // namespace parsim
