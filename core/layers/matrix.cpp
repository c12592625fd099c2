// The kinds that multiply matrices: convolution, dense, matrix product.
#include <fmt/format.h>

#include "core/errors.hpp"
#include "core/layers/kinds.hpp"

namespace parsim::layers {

namespace {

/// Input channels a part of the output channels reads: its groups', or the contraction's share.
Interval conv_input_channels(const Conv& kind, std::int64_t channels, const Part& part) {
  if (!part.contraction.empty()) return part.contraction;
  if (kind.groups == 1) return {0, channels};
  const std::int64_t filters_per_group = kind.filters / kind.groups;
  const std::int64_t channels_per_group = channels / kind.groups;
  const Interval out = part.out[1];
  return {out.begin / filters_per_group * channels_per_group,
          ((out.end - 1) / filters_per_group + 1) * channels_per_group};
}

/// A bias joins the sum once: in the part that holds the first input channel.
Region bias_region(Interval outputs, const Part& part) {
  if (!part.contraction.empty() && part.contraction.begin > 0) return {Interval{}};
  return {outputs};
}

}  // namespace

Shape output_shape(const Conv& kind, Shapes in, std::string_view where) {
  expect_inputs(in, 1, where);
  const Shape& input = in[0];
  if (input.axes.size() != kind.windows.size() + 1 || input.axes[0].dim != Dim::channel) {
    throw InputError(where,
                     fmt::format("a convolution with {} windows meets an input of shape {}",
                                 kind.windows.size(), to_text(input)),
                     "its input is channel × one axis per window");
  }
  const std::int64_t channels = input.axes[0].extent;
  if (kind.filters < 1 || kind.groups < 1 || channels % kind.groups != 0 ||
      kind.filters % kind.groups != 0) {
    throw InputError(where,
                     fmt::format("{} filters in {} groups over {} channels", kind.filters,
                                 kind.groups, channels),
                     "groups divide both filters and channels");
  }
  Shape out{{{Dim::channel, kind.filters}}};
  for (std::size_t i = 0; i < kind.windows.size(); ++i) {
    out.axes.push_back({input.axes[i + 1].dim,
                        window_output(kind.windows[i], input.axes[i + 1].extent, false, where)});
  }
  return out;
}

std::vector<ParameterShape> parameter_shapes(const Conv& kind, Shapes in) {
  ParameterShape weights{"weights", {kind.filters, in[0].axes[0].extent / kind.groups}};
  for (const Window& window : kind.windows) weights.extents.push_back(window.kernel);
  std::vector<ParameterShape> all{std::move(weights)};
  if (kind.bias) all.push_back({"bias", {kind.filters}});
  return all;
}

Region input_region(const Conv& kind, Shapes in, const Shape&, std::size_t, const Part& part) {
  Region region{part.out[0], conv_input_channels(kind, in[0].axes[0].extent, part)};
  for (std::size_t i = 0; i < kind.windows.size(); ++i) {
    region.push_back(window_input(kind.windows[i], part.out[i + 2], in[0].axes[i + 1].extent));
  }
  return region;
}

Region parameter_region(const Conv& kind, Shapes in, const Shape&, std::size_t parameter,
                        const Part& part) {
  if (parameter == 1) return bias_region(part.out[1], part);
  const Interval all{0, in[0].axes[0].extent / kind.groups};
  Region region{part.out[1], part.contraction.empty() ? all : part.contraction};
  for (const Window& window : kind.windows) region.push_back({0, window.kernel});
  return region;
}

Flops forward_flops(const Conv& kind, Shapes in, const Shape&, const Part& part) {
  double per_output =
      2.0 * static_cast<double>(part.contraction.empty() ? in[0].axes[0].extent / kind.groups
                                                         : part.contraction.size());
  for (const Window& window : kind.windows) per_output *= static_cast<double>(window.kernel);
  return {per_output * static_cast<double>(part.out.volume())};
}

std::vector<Dim> cuttable_dims(const Conv& kind, Shapes, const Shape& out) {
  std::vector<Dim> dims = axes_as_dims(out);
  if (kind.groups == 1) dims.push_back(Dim::in_channel);
  return dims;
}

Shape output_shape(const Dense& kind, Shapes in, std::string_view where) {
  expect_inputs(in, 1, where);
  if (in[0].axes.empty() || kind.units < 1) {
    throw InputError(where,
                     fmt::format("a dense layer with {} units meets an input of shape {}",
                                 kind.units, to_text(in[0])),
                     "it needs at least one axis and one unit");
  }
  Shape out = in[0];
  out.axes.back() = {Dim::channel, kind.units};
  return out;
}

std::vector<ParameterShape> parameter_shapes(const Dense& kind, Shapes in) {
  std::vector<ParameterShape> all{{"weights", {kind.units, in[0].axes.back().extent}}};
  if (kind.bias) all.push_back({"bias", {kind.units}});
  return all;
}

Region input_region(const Dense&, Shapes in, const Shape&, std::size_t, const Part& part) {
  Region region = part.out;
  region[region.rank() - 1] =
      part.contraction.empty() ? Interval{0, in[0].axes.back().extent} : part.contraction;
  return region;
}

Region parameter_region(const Dense&, Shapes in, const Shape&, std::size_t parameter,
                        const Part& part) {
  const Interval units = part.out[part.out.rank() - 1];
  if (parameter == 1) return bias_region(units, part);
  return {units,
          part.contraction.empty() ? Interval{0, in[0].axes.back().extent} : part.contraction};
}

Flops forward_flops(const Dense&, Shapes in, const Shape&, const Part& part) {
  const std::int64_t channels =
      part.contraction.empty() ? in[0].axes.back().extent : part.contraction.size();
  return {2.0 * static_cast<double>(channels) * static_cast<double>(part.out.volume())};
}

std::vector<Dim> cuttable_dims(const Dense&, Shapes, const Shape& out) {
  std::vector<Dim> dims = axes_as_dims(out);
  dims.push_back(Dim::in_channel);
  return dims;
}

Shape output_shape(const MatMul&, Shapes in, std::string_view where) {
  expect_inputs(in, 2, where);
  const auto& a = in[0].axes;
  const auto& b = in[1].axes;
  if (a.size() < 2 || b.size() < 2 || a.back().extent != b[b.size() - 2].extent) {
    throw InputError(
        where, fmt::format("shapes {} and {} cannot be multiplied", to_text(in[0]), to_text(in[1])),
        "they are … × m × k and … × k × n");
  }
  const auto& longer = a.size() >= b.size() ? a : b;
  Shape out{longer};
  for (std::size_t i = 0; i + 2 < out.axes.size(); ++i) {
    const std::size_t from_end = out.axes.size() - i;
    const std::int64_t ea = from_end <= a.size() ? a[a.size() - from_end].extent : 1;
    const std::int64_t eb = from_end <= b.size() ? b[b.size() - from_end].extent : 1;
    if (ea != eb && ea != 1 && eb != 1) {
      throw InputError(
          where,
          fmt::format("leading axes of {} and {} do not agree", to_text(in[0]), to_text(in[1])),
          "they are equal or 1");
    }
    out.axes[i].extent = ea == 1 ? eb : ea;
  }
  out.axes[out.axes.size() - 2] = a[a.size() - 2];
  out.axes.back() = b.back();
  return out;
}

Region input_region(const MatMul&, Shapes in, const Shape& out, std::size_t input,
                    const Part& part) {
  Region region = broadcast_region(in[input], out, part.out);
  const std::size_t rank = region.rank();
  const std::int64_t contraction = in[0].axes.back().extent;
  // Operand 0 keeps the rows of the output, operand 1 its columns; the contraction is read whole.
  if (input == 0) {
    region[rank - 2] = part.out[part.out.rank() - 2];
    region[rank - 1] = {0, contraction};
  } else {
    region[rank - 2] = {0, contraction};
    region[rank - 1] = part.out[part.out.rank() - 1];
  }
  return region;
}

Flops forward_flops(const MatMul&, Shapes in, const Shape&, const Part& part) {
  return {2.0 * static_cast<double>(in[0].axes.back().extent) *
          static_cast<double>(part.out.volume())};
}

}  // namespace parsim::layers
