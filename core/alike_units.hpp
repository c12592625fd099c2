// Equal replicas of a plan, and equal ranks of its tensor-parallel groups, of which a folded DAG
// has the operations of one.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/ids.hpp"

namespace parsim {

/// Units of devices. Those of one class do the same at the same time, their devices at the same
/// position being alike; of each class a folded DAG has the first unit, which is kept.
struct AlikeDevices {
  std::vector<std::vector<DeviceId>> devices;     ///< by unit, by position; ascending in each unit
  std::vector<std::int32_t> unit_of;              ///< by device; -1: none
  std::vector<std::int32_t> position_of;          ///< by device
  std::vector<std::vector<std::size_t>> classes;  ///< units, ascending
  std::vector<std::size_t> class_of;              ///< by unit

  AlikeDevices() = default;
  /// by_class   of each unit, numbered by their first units
  /// all        how many devices the cluster has
  AlikeDevices(std::vector<std::vector<DeviceId>> by_unit, std::vector<std::size_t> by_class,
               std::size_t all)
      : devices(std::move(by_unit)),
        unit_of(all, -1),
        position_of(all, -1),
        class_of(std::move(by_class)) {
    for (std::size_t u = 0; u < devices.size(); ++u) {
      if (class_of[u] == classes.size()) classes.emplace_back();
      classes[class_of[u]].push_back(u);
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
  /// All units of the class of a device, which is one of a unit.
  [[nodiscard]] const std::vector<std::size_t>& units_like(DeviceId device) const {
    return classes[class_of[static_cast<std::size_t>(unit_of[device.index()])]];
  }
  [[nodiscard]] std::size_t kept_of(std::size_t unit) const { return classes[class_of[unit]][0]; }
  [[nodiscard]] bool keeps_unit(std::int32_t unit) const {
    return unit < 0 || kept_of(static_cast<std::size_t>(unit)) == static_cast<std::size_t>(unit);
  }
  /// Whether it is of a kept unit or of none.
  [[nodiscard]] bool keeps(DeviceId device) const { return keeps_unit(unit_of[device.index()]); }
  /// The device of the kept unit that is alike.
  [[nodiscard]] DeviceId kept(DeviceId device) const {
    return image(device, units_like(device)[0]);
  }
  /// Gives the devices of all units what those of the kept ones have.
  template <class Value>
  void copy_to_all(std::vector<Value>& by_device) const {
    for (std::size_t u = 0; u < count(); ++u) {
      const std::vector<DeviceId>& from = devices[kept_of(u)];
      for (std::size_t p = 0; p < from.size() && u != kept_of(u); ++p)
        by_device[devices[u][p].index()] = by_device[from[p].index()];
    }
  }
};

/// Units that each work on their own samples: one or several replicas. Only sums of gradients pass
/// from one to another, and all of them take part in these.
///
/// Ways between the devices of a unit cross the same hops in the same order as in another unit of
/// its class, but no hop of another unit.
struct AlikeUnits : AlikeDevices {
  using AlikeDevices::AlikeDevices;
  std::int32_t number = 0;                ///< among those of one finder
  std::vector<std::int32_t> hop_unit;     ///< by hop; -1: no way within a unit crosses it
  std::vector<std::uint32_t> hop_origin;  ///< by hop of a unit: the one in the kept unit

  [[nodiscard]] bool keeps_hop(std::size_t hop) const { return keeps_unit(hop_unit[hop]); }
  /// The device of each unit of the class at the position of one of a kept unit's, for all of a
  /// list; ascending.
  [[nodiscard]] std::vector<DeviceId> everywhere(const std::vector<DeviceId>& of_kept) const {
    std::vector<DeviceId> all;
    for (const DeviceId device : of_kept) {
      for (const std::size_t unit : units_like(device)) all.push_back(image(device, unit));
    }
    std::sort(all.begin(), all.end());
    return all;
  }
  /// Whether all devices are of one kept unit.
  [[nodiscard]] bool within_kept(const std::vector<DeviceId>& group) const {
    return keeps(group[0]) && std::all_of(group.begin(), group.end(), [&](DeviceId device) {
             return unit_of[device.index()] == unit_of[group[0].index()];
           });
  }
};

/// Whose operations a DAG has: those of all devices, or of some of several that are alike.
struct Fold {
  /// The operations are those of the kept units, and the sums of gradients those of all. Null: of
  /// all devices.
  std::shared_ptr<const AlikeUnits> units{};
  /// Kernels and messages (of kept units) are those of the kept ones of these ranks of tensor- or
  /// expert-parallel groups. All collectives are there. Null: of all ranks.
  std::shared_ptr<const AlikeDevices> ranks{};
  /// Of messages from a kept rank to another one, by both devices: to whom each rank of the kept
  /// one's class sends the same, in the order of the class.
  std::map<std::pair<DeviceId, DeviceId>, std::vector<DeviceId>> receivers{};
  /// Collectives of the devices of another rank alone, each with the kept rank's that it is like.
  std::vector<std::pair<OpId, OpId>> images{};

  explicit operator bool() const { return units != nullptr || ranks != nullptr; }
  /// Whether it lacks what the device does by itself.
  [[nodiscard]] bool lacks(DeviceId device) const {
    return (units != nullptr && !units->keeps(device)) ||
           (ranks != nullptr && !ranks->keeps(device));
  }
  /// Of a message between two devices, those that send and receive it in another rank: `number`
  /// in the sender's class.
  [[nodiscard]] std::pair<DeviceId, DeviceId> ends(DeviceId from, DeviceId to,
                                                   std::size_t number) const {
    if (ranks == nullptr || number == 0) return {from, to};
    const std::size_t rank = ranks->units_like(from)[number];
    const auto other = receivers.find({from, to});
    return {ranks->image(from, rank),
            other == receivers.end() ? ranks->image(to, rank) : other->second[number]};
  }
  /// Gives devices whose operations it lacks what those like them have.
  template <class Value>
  void copy_to_all(std::vector<Value>& by_device) const {
    if (ranks != nullptr) ranks->copy_to_all(by_device);
    if (units != nullptr) units->copy_to_all(by_device);
  }
};

}  // namespace parsim
