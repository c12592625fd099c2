// Helpers shared by the kinds.
#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "core/layers/kinds.hpp"

namespace parsim::layers {

Region whole_samples(const Shape& shape, Interval samples) {
  Region region{samples};
  for (const Axis& axis : shape.axes) region.push_back({0, axis.extent});
  return region;
}

void expect_inputs(Shapes in, std::size_t count, std::string_view where) {
  if (in.size() == count) return;
  throw InputError(where, fmt::format("{} inputs", in.size()), fmt::format("it takes {}", count));
}

Interval window_input(const Window& window, Interval out, std::int64_t extent) {
  if (out.empty()) return {};
  const std::int64_t begin = out.begin * window.stride - window.pad_begin;
  const std::int64_t end =
      (out.end - 1) * window.stride - window.pad_begin + window.dilation * (window.kernel - 1) + 1;
  return intersect(Interval{begin, end}, {0, extent});
}

std::int64_t window_output(const Window& window, std::int64_t extent, bool ceil_mode,
                           std::string_view where) {
  const std::int64_t reach = window.dilation * (window.kernel - 1) + 1;
  const std::int64_t room = extent + window.pad_begin + window.pad_end - reach;
  if (window.kernel < 1 || window.stride < 1 || window.dilation < 1 || window.pad_begin < 0 ||
      window.pad_end < 0 || room < 0) {
    throw InputError(
        where,
        fmt::format("kernel {}, stride {}, padding {}+{}, dilation {} over an extent of {}",
                    window.kernel, window.stride, window.pad_begin, window.pad_end, window.dilation,
                    extent),
        "the window is positive and fits into the padded input");
  }
  std::int64_t out = room / window.stride + 1;
  // With ceil_mode a last window may hang over the right edge, but it must begin inside.
  if (ceil_mode && room % window.stride != 0 && out * window.stride < extent + window.pad_begin)
    ++out;
  return out;
}

std::size_t spatial_begin(const Shape& shape) {
  return !shape.axes.empty() && shape.axes[0].dim == Dim::channel ? 1 : 0;
}

Region broadcast_region(const Shape& operand, const Shape& out_shape, const Region& out) {
  Region region{out[0]};
  const std::size_t skipped = out_shape.axes.size() - operand.axes.size();
  for (std::size_t i = 0; i < operand.axes.size(); ++i) {
    const bool repeated = operand.axes[i].extent == 1 && out_shape.axes[skipped + i].extent != 1;
    const Interval same = out[skipped + i + 1];
    region.push_back(repeated ? Interval{0, same.empty() ? 0 : 1} : same);
  }
  return region;
}

std::vector<Dim> axes_as_dims(const Shape& shape) {
  std::vector<Dim> dims{Dim::sample};
  for (const Axis& axis : shape.axes) {
    if (axis.dim != Dim::other && std::find(dims.begin(), dims.end(), axis.dim) == dims.end()) {
      dims.push_back(axis.dim);
    }
  }
  dims.push_back(Dim::replica);
  return dims;
}

}  // namespace parsim::layers
