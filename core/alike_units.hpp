// Equal replicas of a plan, and equal ranks of its tensor-parallel groups, of which a folded DAG
// has the operations of one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/ids.hpp"

namespace parsim {

/// Units of devices that do the same at the same time. The devices of two units at the same
/// position are alike.
struct AlikeDevices {
  std::vector<std::vector<DeviceId>> devices;  ///< by unit, by position; ascending in each unit
  std::vector<std::int32_t> unit_of;           ///< by device; -1: none
  std::vector<std::int32_t> position_of;       ///< by device

  AlikeDevices() = default;
  /// all   how many devices the cluster has
  AlikeDevices(std::vector<std::vector<DeviceId>> by_unit, std::size_t all)
      : devices(std::move(by_unit)), unit_of(all, -1), position_of(all, -1) {
    for (std::size_t u = 0; u < devices.size(); ++u) {
      for (std::size_t p = 0; p < devices[u].size(); ++p) {
        unit_of[devices[u][p].index()] = static_cast<std::int32_t>(u);
        position_of[devices[u][p].index()] = static_cast<std::int32_t>(p);
      }
    }
  }

  [[nodiscard]] std::size_t count() const { return devices.size(); }
  /// The device of a unit at the position of another one's.
  [[nodiscard]] DeviceId image(DeviceId device, std::size_t unit) const {
    return devices[unit][static_cast<std::size_t>(position_of[device.index()])];
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

/// Units that each work on their own samples: one or several replicas. Only sums of gradients pass
/// from one to another, and all of them take part in these.
///
/// Ways between the devices of a unit cross the same hops in the same order as in another unit, but
/// no hop of another unit.
struct AlikeUnits : AlikeDevices {
  using AlikeDevices::AlikeDevices;
  std::int32_t number = 0;                ///< among those of one finder
  std::vector<std::int32_t> hop_unit;     ///< by hop; -1: no way within a unit crosses it
  std::vector<std::uint32_t> hop_origin;  ///< by hop of a unit: the one in the first unit

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
};

/// Whose operations a DAG has: those of all devices, or of some of several that are alike.
struct Fold {
  /// The operations are those of the first unit, and the sums of gradients those of all. Null: of
  /// all devices.
  std::shared_ptr<const AlikeUnits> units{};
  /// Kernels and messages (of the first unit) are those of the first of these ranks of
  /// tensor-parallel groups, which take part in collectives together and send each other nothing
  /// else. All collectives are there. Null: of all ranks.
  std::shared_ptr<const AlikeDevices> ranks{};
  /// Collectives of the devices of another rank alone, each with the first rank's that it is like.
  std::vector<std::pair<OpId, OpId>> images{};

  explicit operator bool() const { return units != nullptr || ranks != nullptr; }
  /// Whether it lacks what the device does by itself.
  [[nodiscard]] bool lacks(DeviceId device) const {
    return (units != nullptr && units->unit_of[device.index()] != 0) ||
           (ranks != nullptr && ranks->unit_of[device.index()] > 0);
  }
  /// Gives devices whose operations it lacks what those like them have.
  template <class Value>
  void copy_to_all(std::vector<Value>& by_device) const {
    if (ranks != nullptr) ranks->copy_to_all(by_device);
    if (units != nullptr) units->copy_to_all(by_device);
  }
};

}  // namespace parsim
