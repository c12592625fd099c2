// The kinds that move or select elements.
#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "core/layers/kinds.hpp"

namespace parsim::layers {

namespace {

void expect_axis(std::size_t axis, const Shape& shape, std::string_view what,
                 std::string_view where) {
  if (axis < shape.axes.size()) return;
  throw InputError(where, fmt::format("{} along axis {} of shape {}", what, axis, to_text(shape)),
                   "the axis exists");
}

}  // namespace

Shape output_shape(const Concat& kind, Shapes in, std::string_view where) {
  if (in.empty()) throw InputError(where, "no inputs", "concat needs at least one");
  Shape out = in[0];
  expect_axis(kind.axis, out, "concat", where);
  for (const Shape& shape : in.subspan(1)) {
    bool same = shape.axes.size() == out.axes.size();
    for (std::size_t i = 0; same && i < out.axes.size(); ++i) {
      same = i == kind.axis || shape.axes[i].extent == out.axes[i].extent;
    }
    if (!same) {
      throw InputError(where,
                       fmt::format("concat of shapes {} and {}", to_text(out), to_text(shape)),
                       "they agree in every axis but the joined one");
    }
    out.axes[kind.axis].extent += shape.axes[kind.axis].extent;
  }
  return out;
}

Region input_region(const Concat& kind, Shapes in, const Shape&, std::size_t input,
                    const Part& part) {
  std::int64_t offset = 0;
  for (std::size_t i = 0; i < input; ++i) offset += in[i].axes[kind.axis].extent;
  const Interval joined =
      intersect(part.out[kind.axis + 1], {offset, offset + in[input].axes[kind.axis].extent});
  Region region = part.out;
  region[kind.axis + 1] =
      joined.empty() ? Interval{} : Interval{joined.begin - offset, joined.end - offset};
  return region;
}

std::vector<Dim> cuttable_dims(const Concat&, Shapes, const Shape& out) {
  return axes_as_dims(out);
}

Shape output_shape(const Slicing& kind, Shapes in, std::string_view where) {
  expect_inputs(in, 1, where);
  expect_axis(kind.axis, in[0], "slice", where);
  Shape out = in[0];
  Axis& axis = out.axes[kind.axis];
  if (kind.step < 1 || kind.begin < 0 || kind.end > axis.extent || kind.begin >= kind.end) {
    throw InputError(where,
                     fmt::format("slice {}:{}:{} of an axis of {}", kind.begin, kind.end, kind.step,
                                 axis.extent),
                     "0 <= begin < end <= extent, step > 0");
  }
  axis.extent = (kind.end - kind.begin + kind.step - 1) / kind.step;
  return out;
}

Region input_region(const Slicing& kind, Shapes, const Shape&, std::size_t, const Part& part) {
  Region region = part.out;
  Interval& axis = region[kind.axis + 1];
  if (!axis.empty()) {
    axis = {kind.begin + axis.begin * kind.step, kind.begin + (axis.end - 1) * kind.step + 1};
  }
  return region;
}

std::vector<Dim> cuttable_dims(const Slicing&, Shapes, const Shape& out) {
  return axes_as_dims(out);
}

Shape output_shape(const Flatten&, Shapes in, std::string_view where) {
  expect_inputs(in, 1, where);
  return vector_shape(in[0].elements());
}

Region input_region(const Flatten&, Shapes in, const Shape&, std::size_t, const Part& part) {
  const std::int64_t inner =
      in[0].axes.empty() || in[0].axes[0].extent == 0 ? 1 : in[0].elements() / in[0].axes[0].extent;
  Region region = whole_samples(in[0], part.out[0]);
  // Whole outer indices (channels) that hold the flat range; a range that begins inside a channel
  // reads all of it.
  if (region.rank() > 1 && !part.out[1].empty()) {
    region[1] = {part.out[1].begin / inner, (part.out[1].end + inner - 1) / inner};
  } else if (region.rank() > 1) {
    region[1] = {};
  }
  return region;
}

std::vector<Dim> cuttable_dims(const Flatten&, Shapes, const Shape& out) {
  return axes_as_dims(out);
}

Shape output_shape(const Rearrange& kind, Shapes in, std::string_view where) {
  if (in.empty())
    throw InputError(where, fmt::format("'{}' without an input", kind.what), "one or more");
  return kind.out;
}
Region input_region(const Rearrange&, Shapes in, const Shape&, std::size_t input,
                    const Part& part) {
  return whole_samples(in[input], part.out.empty() ? Interval{} : part.out[0]);
}
std::vector<Dim> cuttable_dims(const Rearrange&, Shapes, const Shape&) {
  return {Dim::sample, Dim::replica};
}

Shape output_shape(const Reduce& kind, Shapes in, std::string_view where) {
  expect_inputs(in, 1, where);
  for (const std::size_t axis : kind.axes) expect_axis(axis, in[0], kind.function, where);
  Shape out;
  for (std::size_t i = 0; i < in[0].axes.size(); ++i) {
    const bool reduced = std::find(kind.axes.begin(), kind.axes.end(), i) != kind.axes.end();
    if (!reduced) out.axes.push_back(in[0].axes[i]);
    if (reduced && kind.keep) out.axes.push_back({in[0].axes[i].dim, 1});
  }
  return out;
}
Region input_region(const Reduce& kind, Shapes in, const Shape&, std::size_t, const Part& part) {
  Region region{part.out[0]};
  std::size_t next = 1;
  for (std::size_t i = 0; i < in[0].axes.size(); ++i) {
    const bool reduced = std::find(kind.axes.begin(), kind.axes.end(), i) != kind.axes.end();
    region.push_back(reduced ? Interval{0, in[0].axes[i].extent} : part.out[next]);
    if (!reduced || kind.keep) ++next;
  }
  return region;
}
std::vector<Dim> cuttable_dims(const Reduce&, Shapes, const Shape& out) {
  return axes_as_dims(out);
}

}  // namespace parsim::layers
