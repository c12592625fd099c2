#include "lowering/unit_ways.hpp"

#include <algorithm>
#include <map>

namespace parsim::lowering {

UnitWays::UnitWays(const Cluster& cluster, Routes& routes, const std::vector<DeviceId>& devices)
    : cluster_(cluster), routes_(routes), devices_(devices) {
  if (devices.size() < 2) return;
  std::map<NodeId, std::size_t> machines;
  for (std::size_t i = 0; i < devices.size(); ++i)
    machine_.push_back(machines.try_emplace(cluster[devices[i]].node, i).first->second);
  by_switch_ = find_switches();
}

bool UnitWays::find_switches() {
  std::map<SwitchId, std::size_t> known;
  for (const DeviceId device : devices_) {
    const std::optional<SwitchCable> cable = routes_.only_cable(device);
    if (!cable) return false;
    const auto [at, fresh] = known.try_emplace(cable->to, switches_.size());
    if (fresh) switches_.push_back(cable->to);
    cables_.push_back(cable->hop);
    switch_of_.push_back(at->second);
  }
  for (const SwitchId near : switches_) {
    for (const SwitchId far : switches_) {
      if (near != far && routes_.only_way(near, far) == nullptr) return false;
    }
  }
  return true;
}

bool UnitWays::alike(Hop a, Hop b) const {
  const Link &link = cluster_[a.link], &like = cluster_[b.link];
  return link.rate == like.rate && link.latency == like.latency;
}

bool UnitWays::alike(const std::vector<Hop>& a, const std::vector<Hop>& b) const {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](Hop x, Hop y) { return alike(x, y); });
}

bool UnitWays::alike(UnitWays& other) {
  if (machine_ != other.machine_) return false;
  if (!by_switch_ || !other.by_switch_) {
    for (std::size_t i = 0; i < machine_.size(); ++i) {
      for (std::size_t j = 0; j < machine_.size(); ++j) {
        if (i != j && !alike(way(i, j), other.way(i, j))) return false;
      }
    }
    return true;
  }
  // Two devices on one switch are two hops apart, others more.
  if (switch_of_ != other.switch_of_ || !alike(cables_, other.cables_)) return false;
  for (std::size_t i = 0; i < switches_.size(); ++i) {
    for (std::size_t j = 0; j < switches_.size(); ++j) {
      if (i != j && !alike(middle(i, j), other.middle(i, j))) return false;
    }
  }
  return true;
}

}  // namespace parsim::lowering
