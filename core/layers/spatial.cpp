// The kinds that look at neighbourhoods: pooling and normalisation.
#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "core/layers.hpp"
#include "core/layers/kinds.hpp"

namespace parsim::layers {

Shape output_shape(const Pool& kind, Shapes in, std::string_view where) {
  expect_inputs(in, 1, where);
  const std::size_t first = spatial_begin(in[0]);
  if (in[0].axes.size() != kind.windows.size() + first) {
    throw InputError(where,
                     fmt::format("a pooling with {} windows meets an input of shape {}",
                                 kind.windows.size(), to_text(in[0])),
                     "it has one window per spatial axis");
  }
  Shape out = in[0];
  for (std::size_t i = 0; i < kind.windows.size(); ++i) {
    out.axes[first + i].extent =
        window_output(kind.windows[i], in[0].axes[first + i].extent, kind.ceil_mode, where);
  }
  return out;
}

Region input_region(const Pool& kind, Shapes in, const Shape&, std::size_t, const Part& part) {
  const std::size_t first = spatial_begin(in[0]);
  Region region = part.out;
  for (std::size_t i = 0; i < kind.windows.size(); ++i) {
    region[first + i + 1] =
        window_input(kind.windows[i], part.out[first + i + 1], in[0].axes[first + i].extent);
  }
  return region;
}

namespace {

/// The axis along which scale and shift vary: the last for layer normalisation, else the channel.
std::size_t scale_axis(const Norm& kind, const Shape& shape) {
  return kind.kind == NormKind::layer ? shape.axes.size() - 1 : 0;
}

}  // namespace

Shape output_shape(const Norm& kind, Shapes in, std::string_view where) {
  expect_inputs(in, 1, where);
  if (in[0].axes.empty())
    throw InputError(where, "a normalisation of one number", "it needs an axis");
  const std::int64_t channels = in[0].axes[scale_axis(kind, in[0])].extent;
  if (kind.kind == NormKind::group && (kind.size < 1 || channels % kind.size != 0)) {
    throw InputError(where, fmt::format("{} groups over {} channels", kind.size, channels),
                     "groups divide the channels");
  }
  return in[0];
}

std::vector<ParameterShape> parameter_shapes(const Norm& kind, Shapes in) {
  if (!kind.affine || kind.kind == NormKind::local_response) return {};
  const std::int64_t channels = in[0].axes[scale_axis(kind, in[0])].extent;
  return {{"scale", {channels}}, {"shift", {channels}}};
}

Region input_region(const Norm& kind, Shapes in, const Shape&, std::size_t, const Part& part) {
  Region region = part.out;
  if (kind.kind == NormKind::local_response) {
    // A channel is divided by a sum over `size` channels around it; backward reads the same window.
    const std::int64_t before = kind.size / 2, after = kind.size - 1 - before;
    const std::int64_t reach = std::max(before, after);
    region[1] = {std::max<std::int64_t>(0, region[1].begin - reach),
                 std::min(in[0].axes[0].extent, region[1].end + reach)};
  }
  return region;
}

Region parameter_region(const Norm& kind, Shapes in, const Shape&, std::size_t, const Part& part) {
  return {part.out[scale_axis(kind, in[0]) + 1]};
}

std::vector<Dim> cuttable_dims(const Norm& kind, Shapes in, const Shape& out) {
  std::vector<Dim> dims = axes_as_dims(out);
  const auto drop = [&](Dim dim) { std::erase(dims, dim); };
  switch (kind.kind) {
    case NormKind::batch:
    case NormKind::local_response:
      break;
    case NormKind::layer:
      drop(in[0].axes.back().dim);
      break;
    case NormKind::group:
      drop(Dim::channel);
      [[fallthrough]];
    case NormKind::instance:  // statistics over the whole channel
      for (const Dim dim : {Dim::depth, Dim::height, Dim::width, Dim::token}) drop(dim);
      break;
  }
  return dims;
}

Shape output_shape(const Softmax& kind, Shapes in, std::string_view where) {
  expect_inputs(in, 1, where);
  if (kind.axis >= in[0].axes.size()) {
    throw InputError(where,
                     fmt::format("softmax over axis {} of shape {}", kind.axis, to_text(in[0])),
                     "the axis exists");
  }
  return in[0];
}

Region input_region(const Softmax& kind, Shapes in, const Shape&, std::size_t, const Part& part) {
  Region region = part.out;
  region[kind.axis + 1] = {0, in[0].axes[kind.axis].extent};
  return region;
}

std::vector<Dim> cuttable_dims(const Softmax& kind, Shapes, const Shape& out) {
  std::vector<Dim> dims = axes_as_dims(out);
  std::erase(dims, out.axes[kind.axis].dim);
  return dims;
}

Shape output_shape(const Loss&, Shapes in, std::string_view where) {
  expect_inputs(in, 1, where);
  const bool of_tokens = in[0].axes.size() == 2 && in[0].axes[0].dim == Dim::token;
  return of_tokens ? Shape{{in[0].axes[0]}} : Shape{};
}

Region input_region(const Loss&, Shapes in, const Shape& out, std::size_t, const Part& part) {
  Region region = whole_samples(in[0], part.out[0]);
  if (!out.axes.empty()) region[1] = part.out[1];
  if (!part.contraction.empty()) region[class_axis(in[0])] = part.contraction;
  return region;
}

std::vector<Dim> cuttable_dims(const Loss&, Shapes in, const Shape& out) {
  std::vector<Dim> dims = axes_as_dims(out);
  if (!in[0].axes.empty()) dims.push_back(Dim::in_channel);
  return dims;
}

}  // namespace parsim::layers
