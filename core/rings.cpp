#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "core/errors.hpp"
#include "core/ring_order.hpp"
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
Cables direct_cables(const Cluster& cluster, const Routes& routes,
                     std::span<const DeviceId> group) {
  std::map<std::int32_t, std::size_t> position;
  for (std::size_t i = 0; i < group.size(); ++i) position[group[i].value] = i;
  Cables cables;
  for (const DeviceId device : group) {
    for (const Hop hop : routes.cables_of(device)) {
      if (hop.backwards) continue;  // it is found at its other end
      const Link& link = cluster[hop.link];
      const auto a = position.find(link.a.index), b = position.find(link.b.index);
      if (b == position.end()) continue;
      const bool backwards = a->second > b->second;
      cables[std::minmax(a->second, b->second)].push_back({hop.link, backwards});
    }
  }
  for (auto& [ends, hops] : cables) {
    std::sort(hops.begin(), hops.end(), [&](const Hop& x, const Hop& y) {
      return std::pair(-cluster[x.link].rate.value, x.link) <
             std::pair(-cluster[y.link].rate.value, y.link);
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
std::vector<Ring> cable_rings(const Cluster& cluster, const Routes& routes,
                              std::span<const DeviceId> group) {
  Cables cables = direct_cables(cluster, routes, group);
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

/// One machine's part of a group: the cycles through its devices, for rings that enter and leave.
struct MachinePart {
  std::vector<DeviceId> devices;
  /// Along cables of its own where they close; else one, in id order, whose hops are left open.
  std::vector<Ring> cycles;
};

MachinePart machine_of(const Cluster& cluster, const Routes& routes,
                       std::vector<DeviceId> devices) {
  MachinePart machine{std::move(devices), {}};
  const std::size_t count = machine.devices.size();
  if (count > 1 && count <= most_wired)
    machine.cycles = cable_rings(cluster, routes, machine.devices);
  if (machine.cycles.empty()) machine.cycles = {{machine.devices, {}}};
  return machine;
}

/// A device at which a ring may leave a machine, and the links that it then takes.
struct ExitPath {
  std::size_t cycle = 0, position = 0;
  LinkId out, in;   ///< the network cards here and there
  double rate = 0;  ///< of the route to the next machine
  std::size_t hops = 0;
};

/// The links by which a route leaves the first machine and enters the last: their network cards.
std::pair<LinkId, LinkId> cards_of(const Cluster& cluster, const Route& route, NodeId from,
                                   NodeId to) {
  const auto node_of = [&](Port port) {
    const auto index = static_cast<std::size_t>(port.index);
    return port.kind == Port::Kind::device ? cluster.devices[index].node
                                           : cluster.switches[index].node;
  };
  std::pair<LinkId, LinkId> cards;
  for (const Hop& hop : route.hops) {
    const Link& link = cluster[hop.link];
    const NodeId near = node_of(hop.backwards ? link.b : link.a);
    const NodeId far = node_of(hop.backwards ? link.a : link.b);
    if (near == from && far != from && !cards.first.valid()) cards.first = hop.link;
    if (far == to && near != to) cards.second = hop.link;
  }
  ensure(cards.first.valid() && cards.second.valid(), "a route to another machine leaves its own");
  return cards;
}

/// All exits: from each device of each cycle to the device of the same rank of the next machine.
/// Those next to a network card, whose routes are the widest and then the shortest, come first; of
/// equal ones the last.
std::vector<ExitPath> exit_paths(const Cluster& cluster, Routes& routes, const MachinePart& machine,
                                 const MachinePart& next) {
  const NodeId here = cluster[machine.devices.front()].node;
  const NodeId there = cluster[next.devices.front()].node;
  std::vector<ExitPath> exits;
  for (std::size_t c = 0; c < machine.cycles.size(); ++c) {
    const std::vector<DeviceId>& from = machine.cycles[c].devices;
    const std::vector<DeviceId>& to = next.cycles[c % next.cycles.size()].devices;
    for (std::size_t i = from.size(); i-- > 0;) {
      const Route& route = routes.between(from[i], to[(i + 1) % to.size()]);
      const auto [out, in] = cards_of(cluster, route, here, there);
      exits.push_back({c, i, out, in, route.rate.value, route.hops.size()});
    }
  }
  std::stable_sort(exits.begin(), exits.end(), [](const ExitPath& a, const ExitPath& b) {
    return a.rate != b.rate ? a.rate > b.rate : a.hops < b.hops;
  });
  return exits;
}

/// Chooses an exit for each ring of a machine, so that rings leave by the given cards and
/// share neither the next machine's cards nor their cycles more than they must, by backtracking.
class ExitChoice {
 public:
  ExitChoice(const MachinePart& machine, const std::vector<ExitPath>& exits,
             std::vector<LinkId> out)
      : exits_(exits), out_(std::move(out)), cycles_(machine.cycles.size()) {
    std::set<LinkId> in;
    for (const ExitPath& exit : exits_) in.insert(exit.in);
    const std::size_t rings = out_.size();
    const std::size_t of_card = (rings + in.size() - 1) / in.size();
    const std::size_t of_cycle = (rings + cycles_.size() - 1) / cycles_.size();
    // Cards count for more: they are the slower ones.
    const bool found =
        choose_with(of_card, of_cycle) || choose_with(of_card, rings) || choose_with(rings, rings);
    ensure(found, "every given card can be reached");
  }

  [[nodiscard]] const std::vector<ExitPath>& chosen() const { return chosen_; }

 private:
  // Machines have about ten cards and fifty exits; a longer search hardly improves the choice.
  static constexpr std::size_t most_steps = 10'000;

  /// At most so many rings on each card and on each cycle.
  bool choose_with(std::size_t of_card, std::size_t of_cycle) {
    of_card_ = of_card;
    of_cycle_ = of_cycle;
    steps_ = 0;
    return choose(0);
  }

  bool choose(std::size_t ring) {
    if (ring == out_.size()) return true;
    for (const ExitPath& exit : exits_) {
      if (exit.out != out_[ring] || cycles_[exit.cycle] == of_cycle_) continue;
      std::size_t& card = in_[exit.in];
      if (card == of_card_) continue;
      if (++steps_ > most_steps + out_.size()) return false;
      ++card;
      ++cycles_[exit.cycle];
      chosen_.push_back(exit);
      if (choose(ring + 1)) return true;
      chosen_.pop_back();
      --cycles_[exit.cycle];
      --card;
    }
    return false;
  }

  const std::vector<ExitPath>& exits_;
  std::vector<LinkId> out_;
  std::vector<std::size_t> cycles_;   ///< rings on each
  std::map<LinkId, std::size_t> in_;  ///< rings on each
  std::size_t of_card_ = 0, of_cycle_ = 0, steps_ = 0;
  std::vector<ExitPath> chosen_;
};

/// Appends the machine's devices, and the hops between them, from after the exit up to the exit.
void pass_through(const MachinePart& machine, const ExitPath& exit, Routes& routes, Ring& ring) {
  const Ring& cycle = machine.cycles[exit.cycle];
  const std::size_t count = cycle.devices.size();
  for (std::size_t k = 1; k <= count; ++k) {
    const std::size_t at = (exit.position + k) % count, after = (at + 1) % count;
    ring.devices.push_back(cycle.devices[at]);
    if (k == count) break;  // the hop to the next machine follows
    ring.hops.push_back(cycle.hops.empty() ? routes.between(cycle.devices[at], cycle.devices[after])
                                           : cycle.hops[at]);
  }
}

/// Rings through several machines in this order, one for each card of the machine with the fewest.
std::vector<Ring> rings_over(const Cluster& cluster, Routes& routes,
                             const std::vector<MachinePart>& machines) {
  std::vector<std::vector<ExitPath>> exits;
  std::vector<std::vector<LinkId>> cards;
  std::size_t count = std::numeric_limits<std::size_t>::max();
  for (std::size_t i = 0; i < machines.size(); ++i) {
    exits.push_back(exit_paths(cluster, routes, machines[i], machines[(i + 1) % machines.size()]));
    std::set<LinkId> out;
    for (const ExitPath& exit : exits.back()) out.insert(exit.out);
    cards.emplace_back(out.begin(), out.end());
    count = std::min(count, out.size());
  }
  std::vector<Ring> rings(count);
  for (std::size_t i = 0; i < machines.size(); ++i) {
    std::vector<LinkId> out;
    for (std::size_t j = 0; j < count; ++j) out.push_back(cards[i][j * cards[i].size() / count]);
    const ExitChoice choice(machines[i], exits[i], std::move(out));
    for (std::size_t j = 0; j < count; ++j) {
      Ring& ring = rings[j];
      const std::size_t before = ring.devices.size();
      if (before > 0) ring.hops.emplace_back();  // once the next device is known
      pass_through(machines[i], choice.chosen()[j], routes, ring);
      if (before > 0) {
        ring.hops[before - 1] = routes.between(ring.devices[before - 1], ring.devices[before]);
      }
    }
  }
  for (Ring& ring : rings) {
    ring.hops.push_back(routes.between(ring.devices.back(), ring.devices.front()));
  }
  return rings;
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
    std::vector<Ring> rings = cable_rings(cluster, routes, members);
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
  std::vector<MachinePart> parts;
  for (auto& machine : machines) parts.push_back(machine_of(cluster, routes, std::move(machine)));
  std::vector<Ring> rings = rings_over(cluster, routes, parts);
  if (parts.size() < 3 || !crosses_twice(cluster, rings.front())) return rings;
  const std::vector<std::size_t> met = met_along_links(cluster, members.front());
  std::stable_sort(parts.begin(), parts.end(), [&](const MachinePart& a, const MachinePart& b) {
    return met[a.devices.front().index()] < met[b.devices.front().index()];
  });
  std::vector<Ring> along = rings_over(cluster, routes, parts);
  return rate_of(cluster, along) > rate_of(cluster, rings) ? along : rings;
}

}  // namespace parsim
