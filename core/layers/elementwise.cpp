// The kinds that treat every element alone, and the sources of activations.
#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "core/layers/kinds.hpp"

namespace parsim::layers {

Shape output_shape(const Input&, Shapes, std::string_view where) {
  throw InputError(where, "an input without a shape", "use add_input");
}

Region input_region(const Activation& kind, Shapes in, const Shape&, std::size_t,
                    const Part& part) {
  Region region = part.out;
  if (kind.function != "rotary" || region.empty()) return region;
  // Pairs of channels turn together.
  Interval& channels = region[region.rank() - 1];
  channels.begin -= channels.begin % 2;
  channels.end = std::min(channels.end + channels.end % 2, in[0].axes.back().extent);
  return region;
}
std::vector<ParameterShape> parameter_shapes(const Activation& kind, Shapes) {
  if (kind.parameters == 0) return {};
  return {{"slope", {kind.parameters}}};
}
Region parameter_region(const Activation& kind, Shapes, const Shape&, std::size_t,
                        const Part& part) {
  // One slope for all, or one per channel.
  return {kind.parameters == 1 ? Interval{0, 1} : part.out[1]};
}

Shape output_shape(const Combine& kind, Shapes in, std::string_view where) {
  if (in.empty())
    throw InputError(where, "no inputs", "an element-wise function needs at least one");
  Shape out = in[0];
  for (const Shape& shape : in) {
    if (shape.axes.size() > out.axes.size()) out = shape;
  }
  const std::size_t rank = out.axes.size();
  for (const Shape& shape : in) {
    for (std::size_t i = 0; i < shape.axes.size(); ++i) {
      Axis& axis = out.axes[rank - shape.axes.size() + i];
      const Axis& other = shape.axes[i];
      if (axis.extent == 1 && other.extent != 1) axis = other;
      if (other.extent != axis.extent && other.extent != 1) {
        throw InputError(
            where,
            fmt::format("'{}' of shapes {} and {}", kind.function, to_text(out), to_text(shape)),
            "extents are equal or 1, aligned at the last axis");
      }
    }
  }
  return out;
}
Region input_region(const Combine&, Shapes in, const Shape& out, std::size_t input,
                    const Part& part) {
  return broadcast_region(in[input], out, part.out);
}

Shape output_shape(const Embedding& kind, Shapes in, std::string_view where) {
  expect_inputs(in, 1, where);
  if (kind.rows < 1 || kind.width < 1) {
    throw InputError(where, fmt::format("a table of {} x {}", kind.rows, kind.width),
                     "both are positive");
  }
  Shape out = in[0];
  out.axes.push_back({Dim::channel, kind.width});
  return out;
}
std::vector<ParameterShape> parameter_shapes(const Embedding& kind, Shapes) {
  return {{"table", {kind.rows, kind.width}}};
}
Region input_region(const Embedding&, Shapes in, const Shape&, std::size_t, const Part& part) {
  Region region;
  for (std::size_t i = 0; i <= in[0].axes.size(); ++i) region.push_back(part.out[i]);
  return region;
}
Region parameter_region(const Embedding& kind, Shapes, const Shape&, std::size_t,
                        const Part& part) {
  const Interval rows = part.contraction.empty() ? Interval{0, kind.rows} : part.contraction;
  return {rows, part.out[part.out.rank() - 1]};
}
std::vector<Dim> cuttable_dims(const Embedding&, Shapes, const Shape& out) {
  std::vector<Dim> dims = axes_as_dims(out);
  dims.push_back(Dim::in_channel);
  return dims;
}

Shape output_shape(const Learned& kind, Shapes in, std::string_view where) {
  expect_inputs(in, 0, where);
  return kind.out;
}
std::vector<ParameterShape> parameter_shapes(const Learned& kind, Shapes) {
  ParameterShape tensor{"tensor", {}};
  for (const Axis& axis : kind.out.axes) tensor.extents.push_back(axis.extent);
  return {tensor};
}
Region parameter_region(const Learned&, Shapes, const Shape&, std::size_t, const Part& part) {
  Region region;
  for (std::size_t i = 1; i < part.out.rank(); ++i) region.push_back(part.out[i]);
  return region;
}

}  // namespace parsim::layers
