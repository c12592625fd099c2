// Ways between the devices of a unit, and whether those of another unit are like them. Private to
// lowering/.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/alike_units.hpp"
#include "core/cluster.hpp"
#include "core/routes.hpp"

namespace parsim::lowering {

/// The ways from each of a unit's devices to each other one.
///
/// Where devices hang on one switch each and there is one shortest way between these, a way is the
/// device's cable, the hops between the switches and the other's cable: these are looked at once
/// for each cable and pair of switches, which are far fewer than pairs of devices. Elsewhere each
/// pair's way is.
class UnitWays {
 public:
  /// Both must outlive it.
  UnitWays(const Cluster& cluster, Routes& routes, const std::vector<DeviceId>& devices);

  /// Whether the ways of a unit of as many devices have as many hops, as fast, at each position.
  [[nodiscard]] bool alike(UnitWays& other);
  /// Calls visit(hop of one of these ways, hop at the same position of the other unit's), more than
  /// once for some; ends with false as soon as that returns false. The ways must be alike.
  template <class Visit>
  [[nodiscard]] bool visit_hops(UnitWays& other, Visit visit);

 private:
  [[nodiscard]] const std::vector<Hop>& way(std::size_t from, std::size_t to) {
    return routes_.between(devices_[from], devices_[to]).hops;
  }
  [[nodiscard]] const std::vector<Hop>& middle(std::size_t near, std::size_t far) {
    return *routes_.only_way(switches_[near], switches_[far]);
  }
  [[nodiscard]] bool find_switches();
  [[nodiscard]] bool alike(Hop a, Hop b) const;
  [[nodiscard]] bool alike(const std::vector<Hop>& a, const std::vector<Hop>& b) const;

  const Cluster& cluster_;
  Routes& routes_;
  const std::vector<DeviceId>& devices_;
  std::vector<std::size_t> machine_;    ///< by position: the first one of a device on its machine
  bool by_switch_ = false;              ///< else the following are of no use
  std::vector<Hop> cables_;             ///< by position: to the device's switch
  std::vector<SwitchId> switches_;      ///< each once, by the first device on it
  std::vector<std::size_t> switch_of_;  ///< by position: index into these
};

[[nodiscard]] inline Hop back(Hop hop) { return {hop.link, !hop.backwards}; }

template <class Visit>
bool UnitWays::visit_hops(UnitWays& other, Visit visit) {
  const auto visit_way = [&](const std::vector<Hop>& own, const std::vector<Hop>& others) {
    for (std::size_t h = 0; h < own.size(); ++h) {
      if (!visit(own[h], others[h])) return false;
    }
    return true;
  };
  if (devices_.size() < 2) return true;
  if (!by_switch_ || !other.by_switch_) {
    for (std::size_t i = 0; i < devices_.size(); ++i) {
      for (std::size_t j = 0; j < devices_.size(); ++j) {
        if (i != j && !visit_way(way(i, j), other.way(i, j))) return false;
      }
    }
    return true;
  }
  for (std::size_t i = 0; i < cables_.size(); ++i) {
    if (!visit(cables_[i], other.cables_[i])) return false;
    if (!visit(back(cables_[i]), back(other.cables_[i]))) return false;
  }
  for (std::size_t i = 0; i < switches_.size(); ++i) {
    for (std::size_t j = 0; j < switches_.size(); ++j) {
      if (i != j && !visit_way(middle(i, j), other.middle(i, j))) return false;
    }
  }
  return true;
}

}  // namespace parsim::lowering
