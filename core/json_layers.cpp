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
  visit.optional_or("window", attention.window, std::int64_t{0}, Limits{0});
}

void fields(auto& visit, Of<Embedding> auto& embedding) {
  visit("rows", embedding.rows, positive);
  visit("width", embedding.width, positive);
}

void fields(auto& visit, Of<Learned> auto& learned) { visit("out", learned.out); }

void fields(auto& visit, Of<ExpertDispatch> auto& dispatch) {
  visit("top_k", dispatch.top_k, positive);
  visit("slots", dispatch.slots, positive);
  visit.optional_or("groups", dispatch.groups, std::int64_t{1}, positive);
}

void fields(auto& visit, Of<ExpertDense> auto& dense) {
  visit("units", dense.units, positive);
  visit("bias", dense.bias);
  visit("imbalance", dense.imbalance);
}

void fields(auto& visit, Of<ExpertCombine> auto& combine) {
  visit("top_k", combine.top_k, positive);
  visit("normalized", combine.normalized);
  visit.optional_or("groups", combine.groups, std::int64_t{1}, positive);
}

void fields(auto& visit, Of<HeadConcat> auto& concat) { visit("heads", concat.heads, positive); }

void fields(auto& visit, Of<Softmax> auto& softmax) { visit("axis", softmax.axis, axis_number); }

void fields(auto& visit, Of<LayerKind> auto& kind) {
  visit.constant("kind", kind_name(kind));
  std::visit([&](auto& k) { fields(visit, k); }, kind.value);
}

namespace {

using Variant = LayerKind::Variant;

template <std::size_t... I>
std::vector<LayerKind> one_of_each(std::index_sequence<I...>) {
  return {LayerKind{std::variant_alternative_t<I, Variant>{}}...};
}

/// An unconfigured layer of every kind, in the variant's order.
std::vector<LayerKind> each_kind() {
  return one_of_each(std::make_index_sequence<std::variant_size_v<Variant>>{});
}

}  // namespace

void put_special(Writer& out, const LayerKind& kind) {
  out.open_object();
  put_fields(out, kind);
  out.close_object();
}

void get_special(const Node& node, LayerKind& kind) {
  std::vector<LayerKind> known = each_kind();
  std::vector<std::string_view> names;
  for (const LayerKind& one : known) names.push_back(kind_name(one));
  kind = std::move(known[node["kind"].word(names)]);
  get_fields(node, kind);
}

void put_special_schema(Writer& out, const LayerKind&) { put_kinds_schema(out, each_kind()); }

void put_special(Writer& out, const Shape& shape) {
  out.open_array();
  for (const Axis& axis : shape.axes) {
    out.open_array();
    put(out, axis.dim);
    put(out, axis.extent);
    out.close_array();
  }
  out.close_array();
}

void get_special(const Node& node, Shape& shape) {
  if (node.size() > most_axes) node.refuse(fmt::format("accepted: at most {} axes", most_axes));
  shape.axes.clear();
  node.each([&](const Node& item) {
    Axis axis;
    get(item.item(0, 2), axis.dim);
    get(item.item(1, 2), axis.extent, extents);
    shape.axes.push_back(axis);
  });
}

void put_special_schema(Writer& out, const Shape&) {
  out.key("description").text("extents of one sample, outermost first");
  out.key("type").text("array");
  out.key("maxItems").integer(most_axes);
  out.key("items").open_object();
  out.key("type").text("array");
  out.key("prefixItems").open_array();
  put_schema(out, Dim{});
  put_schema(out, std::int64_t{}, extents);
  out.close_array();
  out.key("minItems").integer(2);
  out.key("items").boolean(false);
  out.close_object();
}

Shape shape_made(const LayerKind& kind, const std::vector<Shape>& inputs, const Node& node) {
  try {
    return output_shape(kind, inputs, {});
  } catch (const InputError&) {
    return output_shape(kind, inputs, node.location());  // finding the location is slow: only now
  }
}

}  // namespace parsim::json
