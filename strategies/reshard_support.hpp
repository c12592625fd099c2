// Helpers of resharding in both directions.
#pragma once

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <vector>

#include "core/ids.hpp"
#include "core/region.hpp"

namespace parsim {

/// The box that several boxes fill exactly, or nothing if their hull has holes or they overlap.
[[nodiscard]] inline std::optional<Region> exact_union(std::span<const Region> boxes) {
  Region all;
  std::int64_t volume = 0;
  for (const Region& box : boxes) {
    all = hull(all, box);
    volume += box.volume();
  }
  if (boxes.empty() || all.volume() != volume) return std::nullopt;
  return all;
}

/// Sets of devices that exchange something, by union-find.
class Components {
 public:
  void join(DeviceId a, DeviceId b) { parent_[root(a)] = root(b); }
  [[nodiscard]] DeviceId root(DeviceId device) {
    DeviceId at = device;
    while (parent_.try_emplace(at, at).first->second != at) at = parent_[at];
    parent_[device] = at;
    return at;
  }

 private:
  std::map<DeviceId, DeviceId> parent_;
};

/// Puts items into groups by key, groups and items in order of first appearance.
template <class Item, class Key>
[[nodiscard]] std::vector<std::vector<Item>> group_by(const std::vector<Item>& items, Key key) {
  std::vector<std::vector<Item>> groups;
  std::map<DeviceId, std::size_t> index;
  for (const Item& item : items) {
    const auto [at, fresh] = index.try_emplace(key(item), groups.size());
    if (fresh) groups.emplace_back();
    groups[at->second].push_back(item);
  }
  return groups;
}

}  // namespace parsim
