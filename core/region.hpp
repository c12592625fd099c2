// Boxes in index space: which part of a tensor. Cuts, halos, resharding and gradient
// synchronisation are all intersections of these.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

namespace parsim {

/// Half-open range of indices `[begin, end)`. `begin >= end` is empty.
struct Interval {
  std::int64_t begin = 0, end = 0;

  [[nodiscard]] constexpr std::int64_t size() const { return end > begin ? end - begin : 0; }
  [[nodiscard]] constexpr bool empty() const { return end <= begin; }
  friend constexpr auto operator<=>(const Interval&, const Interval&) = default;
};

[[nodiscard]] constexpr Interval intersect(Interval a, Interval b) {
  const Interval both{a.begin > b.begin ? a.begin : b.begin, a.end < b.end ? a.end : b.end};
  return both.empty() ? Interval{} : both;
}

/// An axis-aligned box, at most `max_rank` axes. Axis 0 of an activation is the sample (within its
/// micro-batch); the others follow the layer's Shape. Parameters have no sample axis.
class Region {
 public:
  static constexpr std::size_t max_rank = 8;

  Region() = default;
  Region(std::initializer_list<Interval> axes) {
    for (const Interval axis : axes) push_back(axis);
  }

  /// Throws BrokenInvariant beyond `max_rank` axes.
  void push_back(Interval axis);
  [[nodiscard]] std::size_t rank() const { return rank_; }
  [[nodiscard]] Interval& operator[](std::size_t axis) { return axes_[axis]; }
  [[nodiscard]] const Interval& operator[](std::size_t axis) const { return axes_[axis]; }
  /// Elements in the box; 0 if any axis is empty. A box of rank 0 holds one element.
  [[nodiscard]] std::int64_t volume() const;
  [[nodiscard]] bool empty() const { return volume() == 0; }
  /// True if every element of `other` lies in this box.
  [[nodiscard]] bool contains(const Region& other) const;

  friend bool operator==(const Region&, const Region&) = default;
  friend std::strong_ordering operator<=>(const Region&, const Region&) = default;

 private:
  std::array<Interval, max_rank> axes_{};
  std::size_t rank_ = 0;
};

/// Common part of two boxes of equal rank; all axes are `[0,0)` if they have none.
[[nodiscard]] Region intersect(const Region& a, const Region& b);
/// Smallest box that holds both; an empty box, or one of rank 0 (the default), adds nothing.
[[nodiscard]] Region hull(const Region& a, const Region& b);
/// Elements `which` of a box, counted in row-major order, as boxes, in that order; fewer than twice
/// as many as the box has axes.
[[nodiscard]] std::vector<Region> row_major_pieces(const Region& box, Interval which);
/// "[0:16, 0:64, 0:112]".
[[nodiscard]] std::string to_text(const Region& region);

}  // namespace parsim

template <>
struct std::hash<parsim::Region> {
  std::size_t operator()(const parsim::Region& region) const noexcept;
};
