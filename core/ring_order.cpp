#include "core/ring_order.hpp"

#include <algorithm>
#include <limits>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace parsim {

namespace {

template <class Call>
void for_each_hop(const Ring& ring, const Call& call) {
  for (const Route& route : ring.hops) {
    for (const Hop hop : route.hops) call(hop);
  }
}

}  // namespace

bool crosses_twice(const Cluster& cluster, const Ring& ring) {
  std::unordered_set<std::size_t> crossed;
  bool twice = false;
  for_each_hop(ring, [&](Hop hop) {
    const Link& link = cluster[hop.link];
    const NodeId machine = machine_of(cluster, link.a);
    const bool within = machine.valid() && machine == machine_of(cluster, link.b);
    if (!within && !crossed.insert(hop.index()).second) twice = true;
  });
  return twice;
}

double rate_of(const Cluster& cluster, const std::vector<Ring>& rings) {
  std::unordered_map<std::size_t, double> uses;
  for (const Ring& ring : rings) for_each_hop(ring, [&](Hop hop) { uses[hop.index()] += 1; });
  double all = 0;
  for (const Ring& ring : rings) {
    double slowest = std::numeric_limits<double>::infinity();
    for_each_hop(ring, [&](Hop hop) {
      slowest = std::min(slowest, cluster[hop.link].rate.value / uses.at(hop.index()));
    });
    all += slowest;
  }
  return all;
}

std::vector<std::size_t> met_along_links(const Cluster& cluster, DeviceId start) {
  const std::size_t devices = cluster.devices.size();
  const auto vertex = [&](Port port) {
    const auto index = static_cast<std::size_t>(port.index);
    return port.kind == Port::Kind::device ? index : devices + index;
  };
  std::vector<std::vector<std::size_t>> neighbours(devices + cluster.switches.size());
  for (const Link& link : cluster.links) {
    neighbours[vertex(link.a)].push_back(vertex(link.b));
    neighbours[vertex(link.b)].push_back(vertex(link.a));
  }
  std::vector<std::size_t> met(neighbours.size(), 0);
  std::vector<std::pair<std::size_t, std::size_t>> path;  // vertex, how many neighbours were tried
  std::size_t count = 0;
  const auto meet = [&](std::size_t vertex_met) {
    met[vertex_met] = ++count;
    const bool forwards = vertex_met >= devices || path.empty();
    path.emplace_back(vertex_met, forwards ? 0 : neighbours[vertex_met].size());
  };
  meet(start.index());
  while (!path.empty()) {
    auto& [at, tried] = path.back();
    if (tried == neighbours[at].size()) {
      path.pop_back();
    } else if (const std::size_t next = neighbours[at][tried++]; met[next] == 0) {
      meet(next);
    }
  }
  met.resize(devices);
  return met;
}

}  // namespace parsim
