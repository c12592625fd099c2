// Layer kinds as JSON: {"kind": "conv", "filters": 64, …}.
#include <fmt/format.h>

#include <utility>

#include "core/errors.hpp"
#include "core/json_support.hpp"

namespace parsim::json {

namespace {

constexpr Limits positive{1};
constexpr std::size_t most_axes = Region::max_rank - 1;  // the sample axis is the other one
constexpr Limits axis_number = index_of(most_axes);

}  // namespace

void fields(auto& visit, Of<Window> auto& window) {
  visit("kernel", window.kernel, positive);
  visit("stride", window.stride, positive);
  visit("pad_begin", window.pad_begin);
  visit("pad_end", window.pad_end);
  visit("dilation", window.dilation, positive);
}

// Kinds without members.
template <class Kind>
  requires std::is_empty_v<Kind>
void fields(auto&, Kind&) {}

void fields(auto& visit, Of<Conv> auto& conv) {
  visit("filters", conv.filters, positive);
  visit("windows", conv.windows);
  visit("groups", conv.groups, positive);
  visit("bias", conv.bias);
}

void fields(auto& visit, Of<Dense> auto& dense) {
  visit("units", dense.units, positive);
  visit("bias", dense.bias);
}

void fields(auto& visit, Of<Pool> auto& pool) {
  visit("function", pool.kind);
  visit("windows", pool.windows);
  visit("ceil_mode", pool.ceil_mode);
  visit("count_padding", pool.count_padding);
}

void fields(auto& visit, Of<Norm> auto& norm) {
  visit("over", norm.kind);
  visit("affine", norm.affine);
  visit("size", norm.size);
}

void fields(auto& visit, Of<Activation> auto& activation) {
  visit("function", activation.function);
  visit("parameters", activation.parameters);
}

void fields(auto& visit, Of<Dropout> auto& dropout) { visit("rate", dropout.rate); }

void fields(auto& visit, Of<Combine> auto& combine) { visit("function", combine.function); }

void fields(auto& visit, Of<Concat> auto& concat) { visit("axis", concat.axis, axis_number); }

void fields(auto& visit, Of<Slicing> auto& slicing) {
  visit("axis", slicing.axis, axis_number);
  visit("begin", slicing.begin);
  visit("end", slicing.end);
  visit("step", slicing.step, positive);
}

void fields(auto& visit, Of<Rearrange> auto& rearrange) {
  visit("what", rearrange.what);
  visit("out", rearrange.out);
  visit("moves_data", rearrange.moves_data);
}

void fields(auto& visit, Of<Reduce> auto& reduce) {
  visit("function", reduce.function);
  visit("axes", reduce.axes, axis_number);
  visit("keep", reduce.keep);
}

void fields(auto& visit, Of<Attention> auto& attention) {
  visit("heads", attention.heads, positive);
  visit("key_heads", attention.key_heads, positive);
  visit("causal", attention.causal);
}

void fields(auto& visit, Of<Embedding> auto& embedding) {
  visit("rows", embedding.rows, positive);
  visit("width", embedding.width, positive);
}

void fields(auto& visit, Of<Learned> auto& learned) { visit("out", learned.out); }

void fields(auto& visit, Of<Softmax> auto& softmax) { visit("axis", softmax.axis, axis_number); }

namespace {

using Variant = LayerKind::Variant;
constexpr std::size_t kinds = std::variant_size_v<Variant>;

/// An unconfigured layer of every kind, in the variant's order.
template <std::size_t... I>
std::array<LayerKind, kinds> one_of_each(std::index_sequence<I...>) {
  return {LayerKind{std::variant_alternative_t<I, Variant>{}}...};
}

}  // namespace

void put_kind(Writer& out, const LayerKind& kind) {
  out.open_object();
  out.key("kind").text(kind_name(kind));
  std::visit([&](const auto& k) { put_fields(out, k); }, kind.value);
  out.close_object();
}

LayerKind get_kind(const Node& node) {
  std::array<LayerKind, kinds> known = one_of_each(std::make_index_sequence<kinds>{});
  std::array<std::string_view, kinds> names;
  for (std::size_t i = 0; i < kinds; ++i) names[i] = kind_name(known[i]);
  LayerKind kind = std::move(known[node["kind"].word(names)]);
  constexpr std::array<std::string_view, 1> besides{"kind"};
  std::visit([&](auto& k) { get_fields(node, k, besides); }, kind.value);
  return kind;
}

void put_shape(Writer& out, const Shape& shape) {
  out.open_array();
  for (const Axis& axis : shape.axes) {
    out.open_array();
    put(out, axis.dim);
    put(out, axis.extent);
    out.close_array();
  }
  out.close_array();
}

Shape get_shape(const Node& node) {
  if (node.size() > most_axes) node.refuse(fmt::format("accepted: at most {} axes", most_axes));
  Shape shape;
  node.each([&](const Node& item) {
    Axis axis;
    get(item.item(0, 2), axis.dim);
    get(item.item(1, 2), axis.extent, extents);
    shape.axes.push_back(axis);
  });
  return shape;
}

Shape shape_made(const LayerKind& kind, const std::vector<Shape>& inputs, const Node& node) {
  try {
    return output_shape(kind, inputs, {});
  } catch (const InputError&) {
    return output_shape(kind, inputs, node.location());  // finding the location is slow: only now
  }
}

}  // namespace parsim::json
