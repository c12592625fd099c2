#include "core/layers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/errors.hpp"
#include "core/layers/kinds.hpp"

namespace parsim {

namespace {

constexpr std::array<std::string_view, 23> kind_names{
    "input",        "conv",           "dense",      "pool",   "norm",
    "activation",   "dropout",        "combine",    "concat", "slice",
    "flatten",      "rearrange",      "reduce",     "matmul", "attention",
    "embedding",    "learned",        "softmax",    "loss",   "expert_dispatch",
    "expert_dense", "expert_combine", "head_concat"};
static_assert(kind_names.size() == std::variant_size_v<LayerKind::Variant>);

}  // namespace

std::int64_t Shape::elements() const {
  std::int64_t count = 1;
  for (const Axis& axis : axes) count *= axis.extent;
  return count;
}

std::size_t Shape::region_axis(Dim dim) const {
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].dim == dim) return i + 1;
  }
  return 0;
}

std::int64_t Shape::extent(Dim dim) const {
  const std::size_t axis = region_axis(dim);
  return axis == 0 ? 0 : axes[axis - 1].extent;
}

HeadMove heads_moved(const Rearrange& kind) {
  return from_text<HeadMove>(kind.what).value_or(HeadMove::none);
}

std::string to_text(const Shape& shape) {
  if (shape.axes.empty()) return "scalar";
  std::string text;
  for (const Axis& axis : shape.axes)
    text += fmt::format("{}{}", text.empty() ? "" : "x", axis.extent);
  return text;
}

Shape vector_shape(std::int64_t channels) { return {{{Dim::channel, channels}}}; }
Shape image_shape(std::int64_t channels, std::int64_t height, std::int64_t width) {
  return {{{Dim::channel, channels}, {Dim::height, height}, {Dim::width, width}}};
}
Shape volume_shape(std::int64_t channels, std::int64_t depth, std::int64_t height,
                   std::int64_t width) {
  return {
      {{Dim::channel, channels}, {Dim::depth, depth}, {Dim::height, height}, {Dim::width, width}}};
}

Region whole(const Shape& shape, std::int64_t samples) {
  return layers::whole_samples(shape, {0, samples});
}

std::string_view kind_name(const LayerKind& kind) { return kind_names[kind.value.index()]; }

// What kinds without a function of their own fall back to.
namespace layers {
template <class Kind>
Shape output_shape(const Kind&, Shapes in, std::string_view where) {
  expect_inputs(in, 1, where);
  return in[0];
}
template <class Kind>
Region input_region(const Kind&, Shapes, const Shape&, std::size_t, const Part& part) {
  return part.out;
}
template <class Kind>
std::vector<Dim> cuttable_dims(const Kind&, Shapes, const Shape& out) {
  return axes_as_dims(out);
}
template <class Kind>
std::vector<ParameterShape> parameter_shapes(const Kind&, Shapes) {
  return {};
}
template <class Kind>
Region parameter_region(const Kind&, Shapes, const Shape&, std::size_t, const Part&) {
  throw BrokenInvariant("this kind of layer has no parameters");
}
template <class Kind>
Flops forward_flops(const Kind&, Shapes, const Shape&, const Part&) {
  return {0};
}
}  // namespace layers

Shape output_shape(const LayerKind& kind, std::span<const Shape> inputs, std::string_view where) {
  return std::visit([&](const auto& k) { return layers::output_shape(k, inputs, where); },
                    kind.value);
}

std::vector<ParameterShape> parameter_shapes(const LayerKind& kind, std::span<const Shape> inputs) {
  return std::visit([&](const auto& k) { return layers::parameter_shapes(k, inputs); }, kind.value);
}

Region input_region(const LayerKind& kind, std::span<const Shape> inputs, const Shape& out,
                    std::size_t input, const Part& part) {
  return std::visit(
      [&](const auto& k) { return layers::input_region(k, inputs, out, input, part); }, kind.value);
}

Region parameter_region(const LayerKind& kind, std::span<const Shape> inputs, const Shape& out,
                        std::size_t parameter, const Part& part) {
  return std::visit(
      [&](const auto& k) { return layers::parameter_region(k, inputs, out, parameter, part); },
      kind.value);
}

Flops forward_flops(const LayerKind& kind, std::span<const Shape> inputs, const Shape& out,
                    const Part& part) {
  return std::visit([&](const auto& k) { return layers::forward_flops(k, inputs, out, part); },
                    kind.value);
}

std::int64_t contraction_extent(const LayerKind& kind, std::span<const Shape> inputs) {
  if (const auto* table = kind.as<Embedding>()) return table->rows;
  const std::vector<Axis>& axes = inputs[0].axes;
  if (kind.as<Loss>() != nullptr) return axes[class_axis(inputs[0]) - 1].extent;
  return kind.as<Conv>() != nullptr ? axes.front().extent : axes.back().extent;
}

std::size_t class_axis(const Shape& scores) {
  return scores.axes[0].dim == Dim::channel ? 1 : scores.axes.size();
}

Region loss_statistics(const Shape& scores, const Part& part, Interval parts) {
  const std::int64_t classes = scores.axes[class_axis(scores) - 1].extent;
  const Interval positions =
      part.out.rank() > 1 ? part.out[1] : Interval{0, scores.elements() / classes};
  return {part.out[0], positions, {4 * parts.begin, 4 * parts.end}};
}

std::vector<Dim> cuttable_dims(const LayerKind& kind, std::span<const Shape> inputs,
                               const Shape& out) {
  std::vector<Dim> dims =
      std::visit([&](const auto& k) { return layers::cuttable_dims(k, inputs, out); }, kind.value);
  for (const Dim always : {Dim::sample, Dim::replica}) {
    if (std::find(dims.begin(), dims.end(), always) == dims.end()) dims.push_back(always);
  }
  return dims;
}

}  // namespace parsim
