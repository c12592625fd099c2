// Operators that reshape, reorder, join and cut.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "networks/onnx_fold.hpp"
#include "networks/onnx_operators.hpp"

namespace parsim::networks::onnx_reader {

namespace {

using Kind = Value::Kind;

/// A weight seen with other extents is the same weight: nothing is computed.
bool is_view(const Value& value) { return value.is(Kind::weight) && value.base == value.dims(); }

Value view(Value value, Extents dims) {
  value.base = dims;
  value.tensor.dims = std::move(dims);
  return value;
}

/// The extents that the node makes of operand 0, by folding a stand-in with the same extents.
Extents folded_dims(const Builder& builder, const Node& node) {
  const Tensor stand_in = Tensor::unknown(Element::real, builder.operand(node, 0).dims());
  std::vector<const Tensor*> in = constants(builder, node);
  in[0] = &stand_in;
  const auto out = fold(node, in, builder.graph().opset);
  return out.value().at(0).dims;
}

/// Reshape, Flatten, Squeeze, Unsqueeze.
void reshape(Builder& builder, const Node& node) {
  const Value& value = builder.operand(node, 0);
  const Extents dims = folded_dims(builder, node);
  if (is_view(value)) return builder.output(node, 0, view(value, dims));
  const Value x = builder.activation(node, value);
  std::optional<Batch> batch;
  if (!x.batch.none() && (node.op == "Squeeze" || node.op == "Unsqueeze")) {
    // The samples' axis moves by the axes of one that come or go before it.
    const bool comes = node.op == "Unsqueeze";
    const auto in = constants(builder, node);
    auto axes = axes_of(node, in.size() > 1 ? in[1] : nullptr, comes ? dims.size() : x.rank());
    if (!comes && axes.empty()) {
      for (std::size_t i = 0; i < x.rank(); ++i) {
        if (x.dims()[i] == 1) axes.push_back(i);
      }
    }
    Batch moved = x.batch;
    bool kept = true;
    if (comes) {
      for (const std::size_t axis : axes)
        moved.axis += static_cast<int>(axis) <= moved.axis ? 1 : 0;
    } else {
      for (const std::size_t axis : axes) {
        moved.axis -= static_cast<int>(axis) < x.batch.axis ? 1 : 0;
        kept = kept && static_cast<int>(axis) != x.batch.axis;
      }
    }
    if (kept) batch = moved;
  }
  builder.output(node, 0, builder.reshape(node, x, dims, batch));
}

void transpose(Builder& builder, const Node& node) {
  const Value& value = builder.operand(node, 0);
  std::vector<std::size_t> order(value.rank());
  std::iota(order.rbegin(), order.rend(), 0);
  if (const auto* given = node.find<std::vector<std::int64_t>>("perm")) {
    if (given->size() != order.size()) {
      builder.refuse(node, fmt::format("perm {}", to_text(*given)),
                     fmt::format("{} axes", order.size()));
    }
    for (std::size_t i = 0; i < order.size(); ++i)
      order[i] = normal_axis((*given)[i], order.size());
  }
  if (is_view(value)) return builder.output(node, 0, view(value, folded_dims(builder, node)));
  builder.output(node, 0, permuted(builder, node, builder.activation(node, value), order));
}

void concat(Builder& builder, const Node& node) {
  std::vector<Value> parts;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const Value& part = builder.operand(node, i);
    const auto count = elements(part.dims());
    if (count && *count == 0) continue;  // an empty cache
    parts.push_back(part.without_numbers());
    if (part.rank() != parts[0].rank()) {
      builder.refuse(node,
                     fmt::format("operands of shapes {} and {}", to_text(parts[0].dims()),
                                 to_text(part.dims())),
                     "operands of the same rank");
    }
  }
  if (parts.empty()) builder.refuse(node, "it has no operands", "at least one");
  const std::size_t rank = parts[0].rank();
  const std::size_t axis = normal_axis(node.integer("axis", 0), rank);
  const Batch batch = builder.common_batch(parts, rank);
  if (batch.axis == static_cast<int>(axis)) {
    builder.refuse(node, "it concatenates along the batch axis", "other axes");
  }
  const auto same = builder.aligned(node, parts, batch, rank);
  Value probe = same[0];
  probe.batch = batch;
  const std::size_t at = builder.sample_axis(node, probe, axis);
  builder.output(node, 0, builder.emit(node, Concat{at}, same, batch));
}

/// Indices begin, begin + step, … of one axis: a layer unless that is all of it.
Value cut(Builder& builder, const Node& node, const Value& x, const AxisSlice& slice) {
  const std::int64_t extent = x.dims()[slice.axis];
  if (slice.count == extent && slice.step == 1) return x;
  if (slice.count < 1) builder.refuse(node, "it keeps no element", "at least one");
  if (static_cast<int>(slice.axis) == x.batch.axis) {
    builder.refuse(node, "it selects samples of the batch", "the same elements of every sample");
  }
  if (slice.step < 0) {
    Extents dims = x.dims();
    dims[slice.axis] = slice.count;
    return builder.rearrange(node, "flip", x, dims, x.batch, builder.roles(x));
  }
  const std::size_t axis = builder.sample_axis(node, x, slice.axis);
  // The end is the last index kept + 1, so that a long step cannot run past the axis.
  const std::int64_t end = slice.begin + (slice.count - 1) * slice.step + 1;
  return builder.emit(node, Slicing{axis, slice.begin, end, slice.step}, {x}, x.batch);
}

void slice(Builder& builder, const Node& node) {
  Value x = builder.activation(node, builder.operand(node, 0));
  for (const AxisSlice& part : slices_of(node, constants(builder, node), x.dims())) {
    x = cut(builder, node, x, part);
  }
  builder.output(node, 0, std::move(x));
}

void split(Builder& builder, const Node& node) {
  const Value x = builder.activation(node, builder.operand(node, 0));
  const std::size_t axis = normal_axis(node.integer("axis", 0), x.rank());
  const auto in = constants(builder, node);
  if (builder.find(node, 1) != nullptr && in[1] == nullptr) {
    builder.refuse(node, "its lengths are computed by the network", "constant lengths");
  }
  std::int64_t begin = 0;
  std::size_t i = 0;
  for (const std::int64_t length :
       split_of(node, in.size() > 1 ? in[1] : nullptr, x.dims()[axis])) {
    const bool read = i < node.outputs.size() && !builder.readers(node.outputs[i]).empty();
    // Parts that are neither read nor outputs of the graph need no layer.
    const bool given = i < node.outputs.size() && builder.is_output(node.outputs[i]);
    if (read || given) builder.output(node, i, cut(builder, node, x, {axis, begin, 1, length}));
    begin += length;
    ++i;
  }
}

constexpr Operator layout_table[] = {
    {"Reshape", reshape},     {"Flatten", reshape}, {"Squeeze", reshape}, {"Unsqueeze", reshape},
    {"Transpose", transpose}, {"Concat", concat},   {"Slice", slice},     {"Split", split},
};

}  // namespace

std::span<const Operator> layout_operators() { return layout_table; }

Value permuted(Builder& builder, const Node& node, const Value& value,
               const std::vector<std::size_t>& order) {
  Extents dims;
  Batch batch = value.batch;
  std::vector<Dim> roles;
  std::vector<std::size_t> kept;  // axes of one sample, in their new order
  const std::vector<Dim> old_roles = builder.roles(value);
  std::vector<bool> used(value.rank(), false);
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (used[order[i]]) builder.refuse(node, "its permutation repeats an axis", "each axis once");
    used[order[i]] = true;
    dims.push_back(value.dims()[order[i]]);
    if (static_cast<int>(order[i]) == value.batch.axis) {
      batch.axis = static_cast<int>(i);
      if (batch.merged() == 1) continue;
      kept.push_back(order[i]);
    } else {
      kept.push_back(builder.sample_axis(node, value, order[i]));
    }
    roles.push_back(old_roles[kept.back()]);
  }
  // Axes of one element do not count: if the others keep their order, nothing moves.
  const Extents sample = builder.sample_extents(value.dims(), value.batch);
  std::vector<std::size_t> moving;
  for (const std::size_t axis : kept) {
    if (sample[axis] != 1) moving.push_back(axis);
  }
  const bool moves = !std::is_sorted(moving.begin(), moving.end());
  if (!moves && builder.sample_extents(dims, batch) == sample) {
    Value out = value;
    out.tensor.dims = std::move(dims);
    out.batch = batch;
    return out;
  }
  return builder.rearrange(node, "transpose", value, dims, batch, roles, moves);
}

}  // namespace parsim::networks::onnx_reader
