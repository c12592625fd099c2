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

namespace {

/// The shape with heads of a move, and where it has tokens and the width of a head.
struct HeadShape {
  const Shape& shape;
  std::size_t tokens = 0, width = 0;
  [[nodiscard]] std::size_t first_not_head() const { return std::min(tokens, width); }
};
HeadShape head_shape(HeadMove move, const Shape& in, const Shape& out) {
  const Shape& shape = move == HeadMove::join ? in : out;
  const std::size_t last = shape.axes.size() - 1;
  if (move == HeadMove::split_transposed) return {shape, last, last - 1};
  return {shape, last - 1, last};
}

void expect_heads(HeadMove move, const Shape& in, const Shape& out, std::string_view where) {
  const Shape& channels = move == HeadMove::join ? out : in;
  const Shape& heads = move == HeadMove::join ? in : out;
  bool fits = channels.axes.size() == 2 && heads.axes.size() > 2;
  if (fits) {
    const HeadShape parts = head_shape(move, in, out);
    fits = channels.axes[0].extent == heads.axes[parts.tokens].extent &&
           channels.elements() == heads.elements();
  }
  if (fits) return;
  throw InputError(where,
                   fmt::format("'{}' from {} to {}", to_text(move), to_text(in), to_text(out)),
                   "tokens × channels on one side, heads × tokens × width on the other");
}

/// The box of tokens × channels that a box of heads is.
Region channels_of(const HeadShape& heads, const Region& part) {
  const auto& axes = heads.shape.axes;
  const std::int64_t width = axes[heads.width].extent;
  // Heads of the inner axes are all read where more than one outer one is.
  Interval head{0, 1};
  for (std::size_t a = 0; a < heads.first_not_head(); ++a) {
    const std::int64_t extent = axes[a].extent;
    const Interval here = part[a + 1];
    if (here.empty()) return {part[0], {}, {}};
    head = head.size() == 1
               ? Interval{head.begin * extent + here.begin, head.begin * extent + here.end}
               : Interval{head.begin * extent, head.end * extent};
  }
  Interval channels{head.begin * width, head.end * width};
  if (head.size() == 1) {
    const Interval here = part[heads.width + 1];
    channels = {channels.begin + here.begin, channels.begin + here.end};
  }
  return {part[0], part[heads.tokens + 1], channels};
}

/// The box with heads that holds a box of tokens × channels: of the inner heads all, unless there
/// is but one outer one.
Region heads_of(const HeadShape& heads, const Region& part) {
  const auto& axes = heads.shape.axes;
  const std::int64_t width = axes[heads.width].extent;
  Region region{part[0]};
  for (std::size_t a = 0; a < axes.size(); ++a) region.push_back({0, axes[a].extent});
  region[heads.tokens + 1] = part[1];
  if (part[2].empty()) {
    region[1] = {};
    return region;
  }
  Interval head{part[2].begin / width, (part[2].end + width - 1) / width};
  std::int64_t inner = 1;
  for (std::size_t a = 1; a < heads.first_not_head(); ++a) inner *= axes[a].extent;
  region[1] = {head.begin / inner, (head.end + inner - 1) / inner};
  return region;
}

}  // namespace

Shape output_shape(const Rearrange& kind, Shapes in, std::string_view where) {
  if (in.empty())
    throw InputError(where, fmt::format("'{}' without an input", kind.what), "one or more");
  if (const HeadMove move = heads_moved(kind); move != HeadMove::none) {
    expect_inputs(in, 1, where);
    expect_heads(move, in[0], kind.out, where);
  }
  return kind.out;
}
Region input_region(const Rearrange& kind, Shapes in, const Shape& out, std::size_t input,
                    const Part& part) {
  const HeadMove move = heads_moved(kind);
  if (move == HeadMove::none || part.out.empty()) {
    return whole_samples(in[input], part.out.empty() ? Interval{} : part.out[0]);
  }
  const HeadShape heads = head_shape(move, in[0], out);
  return move == HeadMove::join ? heads_of(heads, part.out) : channels_of(heads, part.out);
}
std::vector<Dim> cuttable_dims(const Rearrange& kind, Shapes, const Shape& out) {
  if (heads_moved(kind) == HeadMove::none) return {Dim::sample, Dim::replica};
  return axes_as_dims(out);
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

}  // namespace parsim::layers
