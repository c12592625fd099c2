#include "core/region.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "core/hash.hpp"

namespace parsim {

void Region::push_back(Interval axis) {
  ensure(rank_ < max_rank, "a tensor has at most 8 axes");
  axes_[rank_++] = axis;
}

std::int64_t Region::volume() const {
  std::int64_t elements = 1;
  for (std::size_t a = 0; a < rank_; ++a) elements *= axes_[a].size();
  return elements;
}

bool Region::contains(const Region& other) const {
  if (other.empty()) return true;
  for (std::size_t a = 0; a < rank_; ++a) {
    if (other.axes_[a].begin < axes_[a].begin || other.axes_[a].end > axes_[a].end) return false;
  }
  return rank_ == other.rank_;
}

Region intersect(const Region& a, const Region& b) {
  ensure(a.rank() == b.rank(), "regions of one tensor have one rank");
  Region both = a;
  bool empty = false;
  for (std::size_t i = 0; i < a.rank(); ++i) {
    both[i] = intersect(a[i], b[i]);
    empty = empty || both[i].empty();
  }
  if (empty) {
    for (std::size_t i = 0; i < a.rank(); ++i) both[i] = {};
  }
  return both;
}

Region hull(const Region& a, const Region& b) {
  if (a.empty() || a.rank() == 0) return b;
  if (b.empty() || b.rank() == 0) return a;
  Region both = a;
  for (std::size_t i = 0; i < a.rank(); ++i) {
    both[i] = {std::min(a[i].begin, b[i].begin), std::max(a[i].end, b[i].end)};
  }
  return both;
}

namespace {

/// The axes before `axis` have one element each.
void add_pieces(Region box, std::size_t axis, Interval which, std::vector<Region>& out) {
  if (which.empty()) return;
  const std::int64_t all = box.volume();
  if (which.begin <= 0 && which.end >= all) {
    out.push_back(box);
    return;
  }
  const std::int64_t row = all / box[axis].size();
  const Interval rows = box[axis];
  const auto add = [&](Interval from_to, Interval elements) {
    box[axis] = {rows.begin + from_to.begin, rows.begin + from_to.end};
    add_pieces(box, axis + (from_to.size() == 1 ? 1 : 0), elements, out);
  };
  const std::int64_t first = which.begin / row, last = which.end / row;
  const Interval in_first{which.begin - first * row, which.end - first * row};
  if (first == last) return add({first, first + 1}, in_first);
  const std::int64_t whole = in_first.begin > 0 ? first + 1 : first;  // the first whole row
  if (whole > first) add({first, whole}, {in_first.begin, row});
  if (whole < last) add({whole, last}, {0, (last - whole) * row});
  if (which.end > last * row) add({last, last + 1}, {0, which.end - last * row});
}

}  // namespace

std::vector<Region> row_major_pieces(const Region& box, Interval which) {
  std::vector<Region> pieces;
  add_pieces(box, 0, which, pieces);
  return pieces;
}

std::string to_text(const Region& region) {
  std::string text = "[";
  for (std::size_t i = 0; i < region.rank(); ++i) {
    text += fmt::format("{}{}:{}", i == 0 ? "" : ", ", region[i].begin, region[i].end);
  }
  return text + "]";
}

}  // namespace parsim

std::size_t std::hash<parsim::Region>::operator()(const parsim::Region& region) const noexcept {
  std::uint64_t state = region.rank();
  for (std::size_t i = 0; i < region.rank(); ++i) {
    for (const std::int64_t bound : {region[i].begin, region[i].end}) {
      state = parsim::hash_combine(state, bound);
    }
  }
  return state;
}
