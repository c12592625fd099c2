// Equal replicas of a plan, of which a folded DAG has the operations of one.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/ids.hpp"

namespace parsim {

/// Units of devices that do the same at the same time, each for its own samples: one or several
/// replicas. Only sums of gradients pass from one to another, and all of them take part in these.
///
/// The devices of two units at the same position are alike, and ways between the devices of a unit
/// cross the same hops in the same order as in another unit, but no hop of another unit.
struct AlikeUnits {
  std::int32_t number = 0;                     ///< among those of one finder
  std::vector<std::vector<DeviceId>> devices;  ///< by unit, by position; ascending in each unit
  std::vector<std::int32_t> unit_of;           ///< by device; -1: none
  std::vector<std::int32_t> position_of;       ///< by device
  std::vector<std::int32_t> hop_unit;          ///< by hop; -1: no way within a unit crosses it
  std::vector<std::uint32_t> hop_origin;       ///< by hop of a unit: the one in the first unit

  [[nodiscard]] std::size_t count() const { return devices.size(); }
  /// The device of each unit at the position of one of the first unit's, for all of a list;
  /// ascending.
  [[nodiscard]] std::vector<DeviceId> everywhere(const std::vector<DeviceId>& of_first) const {
    std::vector<DeviceId> all;
    all.reserve(of_first.size() * count());
    for (const std::vector<DeviceId>& unit : devices) {
      for (const DeviceId device : of_first)
        all.push_back(unit[static_cast<std::size_t>(position_of[device.index()])]);
    }
    std::sort(all.begin(), all.end());
    return all;
  }
  /// Whether some of the devices belong to other units than the first.
  [[nodiscard]] bool beyond_first(const std::vector<DeviceId>& group) const {
    return std::any_of(group.begin(), group.end(),
                       [&](DeviceId device) { return unit_of[device.index()] != 0; });
  }
  /// Gives the devices of all units what those of the first have.
  template <class Value>
  void copy_to_all(std::vector<Value>& by_device) const {
    for (std::size_t u = 1; u < count(); ++u) {
      for (std::size_t p = 0; p < devices[0].size(); ++p)
        by_device[devices[u][p].index()] = by_device[devices[0][p].index()];
    }
  }
};

}  // namespace parsim
