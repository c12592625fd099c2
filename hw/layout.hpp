// From regions of the DAG to the loops that kernels run: which axis is fastest, which axes are one.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/errors.hpp"
#include "core/region.hpp"
#include "core/shape.hpp"
#include "hw/math/pointwise.hpp"
#include "hw/math/view.hpp"

namespace parsim::hw {

[[nodiscard]] inline std::int32_t narrow(std::int64_t value) {
  ensure(value >= -(std::int64_t{1} << 31) && value < (std::int64_t{1} << 31),
         "positions of kernels have 32 bits");
  return static_cast<std::int32_t>(value);
}

/// Strides of a box that lies densely in memory: row-major, or with the channel axis (1) innermost.
[[nodiscard]] inline std::array<std::int64_t, most_axes> dense_strides(const Region& box,
                                                                       bool channels_last) {
  std::array<std::int64_t, most_axes> strides{};
  std::int64_t step = 1;
  const std::size_t rank = box.rank();
  if (channels_last && rank > 2) {
    strides[1] = 1;
    step = std::max<std::int64_t>(1, box[1].size());
  }
  for (std::size_t a = rank; a > 0; --a) {
    if (channels_last && rank > 2 && a - 1 == 1) continue;
    strides[a - 1] = step;
    step *= std::max<std::int64_t>(1, box[a - 1].size());
  }
  return strides;
}

/// How a tensor lies in memory: row-major, with the channel axis (1) innermost, or with the experts
/// (axis 1) before the samples, so that each expert's rows follow each other.
enum class Layout : std::uint8_t { row_major, channels_last, experts_first };

[[nodiscard]] inline std::array<std::int64_t, most_axes> dense_strides(const Region& box,
                                                                       Layout layout) {
  if (layout != Layout::experts_first || box.rank() < 2) {
    return dense_strides(box, layout == Layout::channels_last);
  }
  Region turned = box;
  std::swap(turned[0], turned[1]);
  auto strides = dense_strides(turned, false);
  std::swap(strides[0], strides[1]);
  return strides;
}

/// A dense tensor over `box` at `data`.
template <class T>
[[nodiscard]] View<T> dense_view(T* data, const Region& box, Layout layout) {
  View<T> view;
  view.data = data;
  const auto strides = dense_strides(box, layout);
  for (std::size_t a = 0; a < box.rank(); ++a) {
    view.begin[a] = narrow(box[a].begin);
    view.stride[a] = strides[a];
  }
  return view;
}
template <class T>
[[nodiscard]] View<T> dense_view(T* data, const Region& box, bool channels_last) {
  return dense_view(data, box, channels_last ? Layout::channels_last : Layout::row_major);
}

[[nodiscard]] inline Box box_of(const Region& region) {
  Box box;
  for (std::size_t a = 0; a < region.rank(); ++a) {
    box.begin[a] = narrow(region[a].begin);
    box.end[a] = narrow(region[a].end);
  }
  return box;
}

[[nodiscard]] inline Index first_of(const Region& region) {
  Index index;
  for (std::size_t a = 0; a < region.rank(); ++a) index.at[a] = narrow(region[a].begin);
  return index;
}

/// The region's axes, slowest in memory first (by id among equals).
template <class T>
[[nodiscard]] std::vector<std::size_t> memory_order(const Region& region, const View<T>& view) {
  std::vector<std::size_t> axes;
  for (std::size_t a = 0; a < region.rank(); ++a) axes.push_back(a);
  std::stable_sort(axes.begin(), axes.end(),
                   [&](std::size_t a, std::size_t b) { return view.stride[a] > view.stride[b]; });
  return axes;
}

/// Whether the view's axis 1 lies inside of the axes after it.
template <class T>
[[nodiscard]] bool has_channels_last(const Region& region, const View<T>& view) {
  const std::vector<std::size_t> order = memory_order(region, view);
  return region.rank() > 2 && order.back() == 1;
}

/// Loops over the region in the view's order of memory; those axes in `without` are left out.
template <class T>
[[nodiscard]] Loops loops_over(const Region& region, const View<T>& view,
                               const std::vector<std::size_t>& without = {}) {
  ensure(region.volume() < (std::int64_t{1} << 32), "a kernel has fewer than 2^32 elements");
  Loops loops;
  loops.channels_last = has_channels_last(region, view);
  for (std::size_t a = 0; a < region.rank(); ++a) {
    if (std::find(without.begin(), without.end(), a) != without.end()) continue;
    loops.over(a, narrow(region[a].begin), static_cast<std::uint32_t>(region[a].size()));
  }
  return loops;
}

/// How an operand of such a shape is broadcast to an output.
[[nodiscard]] inline Broadcast broadcast_of(const Shape& operand, const Shape& out) {
  Broadcast broadcast;
  broadcast.rank = static_cast<int>(out.axes.size()) + 1;
  broadcast.missing = static_cast<int>(out.axes.size() - operand.axes.size());
  for (std::size_t a = 0; a < operand.axes.size(); ++a) {
    broadcast.narrow[a + 1] = operand.axes[a].extent == 1;
  }
  return broadcast;
}
/// The output's axes, without the last `skip`: along `many` the operand has one element for all, or
/// along `one` one for each.
struct SharedAxes {
  std::vector<std::size_t> many, one;
};
[[nodiscard]] inline SharedAxes shared_axes(const Broadcast& operand, std::size_t skip = 0) {
  SharedAxes axes;
  const auto missing = static_cast<std::size_t>(operand.missing);
  for (std::size_t a = 0; a + skip < static_cast<std::size_t>(operand.rank); ++a) {
    const bool shared = a > 0 && (a <= missing || operand.narrow[a - missing]);
    (shared ? axes.many : axes.one).push_back(a);
  }
  return axes;
}

/// A walk over the same region of N tensors of one rank, in the first one's order of memory; axes
/// in `without` stay at their beginning.
template <class T, std::size_t N>
[[nodiscard]] Walk<static_cast<int>(N)> walk_over(const Region& region,
                                                  const std::array<View<T>, N>& views,
                                                  const std::vector<std::size_t>& without = {}) {
  ensure(region.volume() < (std::int64_t{1} << 32), "a kernel has fewer than 2^32 elements");
  Walk<static_cast<int>(N)> walk;
  for (const std::size_t a : memory_order(region, views[0])) {
    const std::int64_t extent = region[a].size();
    if (extent == 1 || std::find(without.begin(), without.end(), a) != without.end()) continue;
    bool merges = walk.rank > 0;
    for (std::size_t n = 0; n < N && merges; ++n) {
      merges = walk.stride[n][walk.rank - 1] == views[n].stride[a] * extent;
    }
    if (!merges) {
      walk.extent[walk.rank++] = 1;
    }
    walk.extent[walk.rank - 1] *= static_cast<std::uint32_t>(extent);
    for (std::size_t n = 0; n < N; ++n) walk.stride[n][walk.rank - 1] = views[n].stride[a];
  }
  return walk;
}

/// True if the region's elements lie in the same way in both.
template <class T>
[[nodiscard]] bool lies_alike(const Region& region, const View<T>& a, const View<T>& b) {
  for (std::size_t axis = 0; axis < region.rank(); ++axis) {
    if (region[axis].size() > 1 && a.stride[axis] != b.stride[axis]) return false;
  }
  return true;
}

/// True if the region's elements have the same offsets in both.
template <class T>
[[nodiscard]] bool same_place(const Region& region, const View<T>& a, const View<T>& b) {
  return lies_alike(region, a, b) && a.offset(first_of(region)) == b.offset(first_of(region));
}

/// True if the region's elements lie without gaps in the view's order of memory.
template <class T>
[[nodiscard]] bool is_packed(const Region& region, const View<T>& view) {
  const auto wanted = dense_strides(region, has_channels_last(region, view));
  for (std::size_t a = 0; a < region.rank(); ++a) {
    if (region[a].size() > 1 && view.stride[a] != wanted[a]) return false;
  }
  return true;
}

/// The element of a view where a region begins; null if the view is of no memory, only of strides.
template <class T>
[[nodiscard]] T* start_of(const View<T>& view, const Region& region) {
  return view.data == nullptr ? nullptr : view.data + view.offset(first_of(region));
}

}  // namespace parsim::hw
