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

namespace parsim::lowering {

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

/// The parts of `box` outside `hole`, disjoint.
[[nodiscard]] inline std::vector<Region> without(Region box, const Region& hole) {
  if (intersect(box, hole).empty()) return {box};
  std::vector<Region> rest;
  for (std::size_t a = 0; a < box.rank(); ++a) {
    for (const Interval side :
         {Interval{box[a].begin, hole[a].begin}, Interval{hole[a].end, box[a].end}}) {
      if (side.empty()) continue;
      rest.push_back(box);
      rest.back()[a] = side;
    }
    box[a] = intersect(box[a], hole[a]);
  }
  return rest;
}

/// Disjoint boxes that cover the same elements as `boxes`, as few as joining neighbours makes them.
[[nodiscard]] inline std::vector<Region> disjoint(std::span<const Region> boxes) {
  std::vector<Region> result;
  for (const Region& box : boxes) {
    std::vector<Region> fresh{box};
    if (box.empty()) fresh.clear();
    for (const Region& known : result) {
      std::vector<Region> rest;
      for (const Region& piece : fresh) {
        const std::vector<Region> parts = without(piece, known);
        rest.insert(rest.end(), parts.begin(), parts.end());
      }
      fresh = std::move(rest);
    }
    for (Region& piece : fresh) {
      for (std::size_t i = 0; i < result.size();) {  // a longer piece may reach another neighbour
        const Region both = hull(result[i], piece);
        if (both.volume() != result[i].volume() + piece.volume()) {
          ++i;
          continue;
        }
        piece = both;
        result.erase(result.begin() + static_cast<std::ptrdiff_t>(i));
        i = 0;
      }
      result.push_back(piece);
    }
  }
  return result;
}

/// `parts` boxes that make up a box, as equal as possible: along its first axis that divides
/// evenly, else its longest. Nothing if no axis is long enough.
[[nodiscard]] std::optional<std::vector<Region>> even_boxes(const Region& box, std::size_t parts);

/// Sets of devices that exchange something, by union-find.
class Components {
 public:
  void join(DeviceId a, DeviceId b) {
    const DeviceId from = root(a), to = root(b);
    parent_[from.index()] = to;
  }
  [[nodiscard]] DeviceId root(DeviceId device) {
    while (parent_.size() <= device.index()) parent_.emplace_back(parent_.size());
    DeviceId at = device;
    while (parent_[at.index()] != at) at = parent_[at.index()];
    parent_[device.index()] = at;
    return at;
  }

 private:
  std::vector<DeviceId> parent_;  ///< by device
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

}  // namespace parsim::lowering
