// Operators that look up, repeat, pad and resample.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "networks/onnx_fold.hpp"
#include "networks/onnx_operators.hpp"

namespace parsim::networks::onnx_reader {

namespace {

using Kind = Value::Kind;

/// Extents of a Gather: the data's, with those of the indices in place of axis `axis`.
Extents gathered(const Value& data, const Value& indices, std::size_t axis) {
  Extents dims = data.dims();
  dims.erase(dims.begin() + static_cast<std::ptrdiff_t>(axis));
  dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(axis), indices.dims().begin(),
              indices.dims().end());
  return dims;
}

/// Indices that the network computes (token ids) into an embedding table.
void look_up(Builder& builder, const Node& node, const Value& data, const Value& indices,
             std::size_t axis) {
  if (data.is(Kind::weight) && data.rank() == 2 && axis == 0 && data.base == data.dims()) {
    const Embedding table{data.dims()[0], data.dims()[1]};
    return builder.output(node, 0, builder.emit(node, table, {indices}, indices.batch, {data}));
  }
  const Value from = builder.activation(node, data);
  if (!from.batch.none()) {
    builder.refuse(node, "it gathers from activations with computed indices",
                   "constant indices, or an embedding table");
  }
  Batch batch = indices.batch;
  if (!batch.none()) batch.axis += static_cast<int>(axis);
  const Extents dims = gathered(data, indices, axis);
  if (!elements(dims) || dims.size() > most_axes) {
    builder.refuse(node, fmt::format("its output has shape {}", to_text(dims)),
                   fmt::format("at most {} axes and 2^40 elements", most_axes));
  }
  Shape out;
  for (const std::int64_t extent : builder.sample_extents(dims, batch)) {
    out.axes.push_back({Dim::other, extent});
  }
  builder.output(node, 0,
                 builder.emit(node, Rearrange{"gather", out, true}, {from, indices}, batch));
}

/// Constant indices: a slice if they follow one another, else a rearrangement.
void select(Builder& builder, const Node& node, const Value& data, const Value& indices,
            std::size_t axis) {
  const Value x = builder.activation(node, data);
  if (static_cast<int>(axis) == x.batch.axis) {
    builder.refuse(node, "it selects samples of the batch", "the same elements of every sample");
  }
  const std::int64_t extent = x.dims()[axis];
  const Tensor& at = indices.tensor;
  std::int64_t first = 0;
  bool run = at.known && at.element != Element::real && at.count() > 0 && indices.rank() <= 1;
  for (std::size_t i = 0; run && i < at.count(); ++i) {
    if (at.integers[i] < -extent || at.integers[i] >= extent) {
      builder.refuse(node,
                     fmt::format("index {} is outside an axis of size {}", at.integers[i], extent),
                     "indices within the axis");
    }
    const std::int64_t index = at.integers[i] < 0 ? at.integers[i] + extent : at.integers[i];
    if (i == 0) first = index;
    run = index == first + static_cast<std::int64_t>(i);
  }
  const Extents dims = gathered(x, indices, axis);
  Batch batch = x.batch;
  if (static_cast<int>(axis) < batch.axis) batch.axis += static_cast<int>(indices.rank()) - 1;
  if (!run) {
    // One row of positions per sample, all alike, picks the same for every sample.
    const bool per_sample = batch.none() && builder.batch() > 1 && axis == 0 &&
                            indices.rank() > 1 && indices.dims()[0] == builder.batch();
    if (per_sample) batch = {0, 1, 1};
    std::vector<Dim> roles;
    if (indices.rank() == 1) roles = builder.roles(x);
    return builder.output(node, 0, builder.rearrange(node, "gather", x, dims, batch, roles));
  }
  const auto count = static_cast<std::int64_t>(at.count());
  Value out = x;
  if (count != extent) {
    const std::size_t own = builder.sample_axis(node, x, axis);
    out = builder.emit(node, Slicing{own, first, first + count, 1}, {x}, x.batch);
  }
  builder.output(node, 0, builder.reshape(node, out, dims, batch));
}

void gather(Builder& builder, const Node& node) {
  const Value& data = builder.operand(node, 0);
  const Value& indices = builder.operand(node, 1);
  const std::size_t axis = normal_axis(node.integer("axis", 0), data.rank());
  if (indices.is(Kind::constant)) return select(builder, node, data, indices, axis);
  look_up(builder, node, matrix(builder, node, 0), builder.activation(node, indices), axis);
}

void expand(Builder& builder, const Node& node) {
  const Value& value = builder.operand(node, 0);
  const auto in = constants(builder, node);
  const Extents dims =
      broadcast(value.dims(), integers(parsim::networks::onnx_reader::operand(in, 1), "sizes"));
  if (!value.is(Kind::weight)) {
    return builder.output(node, 0, builder.expand(node, builder.activation(node, value), dims));
  }
  // Still the weight: the operator that reads it decides whether the copies are one per sample.
  Value out = value;
  out.base.insert(out.base.begin(), dims.size() - value.rank(), 1);
  out.tensor.dims = dims;
  builder.output(node, 0, std::move(out));
}

void tile(Builder& builder, const Node& node) {
  const Value& value = builder.operand(node, 0);
  const auto in = constants(builder, node);
  const auto times = integers(operand(in, 1), "repeats");
  Extents dims = value.dims();
  bool copies = times.size() == dims.size();  // of axes of one element only, as Expand makes them
  for (std::size_t i = 0; i < dims.size() && i < times.size(); ++i) {
    if (times[i] < 1 || times[i] > most_elements / dims[i]) {
      builder.refuse(node, fmt::format("{} repeats of an axis of size {}", times[i], dims[i]),
                     "1 or more");
    }
    copies = copies && (times[i] == 1 || dims[i] == 1);
    dims[i] *= times[i];
  }
  if (times.size() != dims.size() || !elements(dims)) {
    builder.refuse(node,
                   fmt::format("repeats {} of shape {}", to_text(times), to_text(value.dims())),
                   "one repeat per axis");
  }
  if (value.is(Kind::weight) && copies) {
    Value out = value;
    out.tensor.dims = dims;
    return builder.output(node, 0, std::move(out));
  }
  const Value x = builder.activation(node, value);
  if (copies) return builder.output(node, 0, builder.expand(node, x, dims));
  if (!x.batch.none() && times[static_cast<std::size_t>(x.batch.axis)] != 1) {
    builder.refuse(node, "it repeats samples of the batch", "repeats within a sample");
  }
  builder.output(node, 0, builder.rearrange(node, "tile", x, dims, x.batch, builder.roles(x)));
}

void pad(Builder& builder, const Node& node) {
  const Value x = builder.activation(node, builder.operand(node, 0));
  if (builder.find(node, 1) != nullptr && !builder.operand(node, 1).is(Kind::constant)) {
    builder.refuse(node, "its paddings are computed by the network", "constant paddings");
  }
  const auto pads = pads_of(node, constants(builder, node), x.rank());
  Extents dims = x.dims();
  for (std::size_t i = 0; i < dims.size(); ++i) {
    const std::int64_t before = pads[i], after = pads[dims.size() + i];
    if ((before != 0 || after != 0) && static_cast<int>(i) == x.batch.axis) {
      builder.refuse(node, "it pads the batch axis", "padding of other axes");
    }
    dims[i] += before + after;
    if (dims[i] < 1)
      builder.refuse(node, "its padding leaves an empty axis", "at least one element");
  }
  builder.output(
      node, 0,
      dims == x.dims() ? x : builder.rearrange(node, "pad", x, dims, x.batch, builder.roles(x)));
}

/// Resize has roi, scales, sizes as operands 1 to 3; Upsample and the first Resize scales at 1.
void resize(Builder& builder, const Node& node) {
  const Value x = builder.activation(node, builder.operand(node, 0));
  Extents dims = x.dims();
  // Initializers, too: nothing learns a scale.
  const auto numbers = [&](std::size_t i) -> const Tensor* {
    const Value* value = builder.find(node, i);
    const bool known = value != nullptr && !value->is(Value::Kind::activation) &&
                       value->tensor.known && value->tensor.count() == x.rank();
    return known ? &value->tensor : nullptr;
  };
  const auto* attribute = node.find<std::vector<double>>("scales");
  const Tensor* const sizes = numbers(3);
  const Tensor* const scales = numbers(node.inputs.size() > 2 ? 2 : 1);
  if (sizes != nullptr) {
    dims = integers(*sizes, "sizes");
  } else if (scales != nullptr || (attribute != nullptr && attribute->size() == x.rank())) {
    for (std::size_t i = 0; i < x.rank(); ++i) {
      const double scale = attribute != nullptr ? (*attribute)[i] : scales->real(i);
      const double extent = std::floor(static_cast<double>(dims[i]) * scale);
      if (!(extent >= 1 && extent < static_cast<double>(most_elements))) {
        builder.refuse(node, fmt::format("scale {} leaves an empty axis", scale),
                       "at least one element");
      }
      dims[i] = static_cast<std::int64_t>(extent);
    }
  } else {
    builder.refuse(node, "neither sizes nor scales are constant", "constants, one per axis");
  }
  for (std::size_t i = 0; i < x.rank(); ++i) {
    if (static_cast<int>(i) == x.batch.axis && dims[i] != x.dims()[i]) {
      builder.refuse(node, "it resizes the batch axis", "sizes of other axes");
    }
  }
  builder.output(node, 0, builder.rearrange(node, "resize", x, dims, x.batch, builder.roles(x)));
}

/// Blocks of channels become blocks of pixels, or back.
void depth_and_space(Builder& builder, const Node& node) {
  const Value x = builder.activation(node, builder.operand(node, 0));
  const std::int64_t block = node.integer("blocksize", 0);
  const bool to_space = node.op == "DepthToSpace";
  Extents dims = x.dims();
  const bool fits =
      dims.size() == 4 && x.batch.axis == 0 && block > 0 && block < (1 << 20) &&
      (to_space ? dims[1] % (block * block) == 0 : dims[2] % block == 0 && dims[3] % block == 0);
  if (!fits) {
    builder.refuse(node, fmt::format("blocks of {} in shape {}", block, to_text(dims)),
                   "blocks that divide batch × channel × height × width");
  }
  dims[1] = to_space ? dims[1] / (block * block) : dims[1] * block * block;
  for (const std::size_t i : {2U, 3U}) dims[i] = to_space ? dims[i] * block : dims[i] / block;
  builder.output(node, 0,
                 builder.rearrange(node, to_space ? "depth-to-space" : "space-to-depth", x, dims,
                                   x.batch, builder.roles(x)));
}

constexpr Operator gather_table[] = {
    {"Gather", gather},
    {"Expand", expand},
    {"Tile", tile},
    {"Pad", pad},
    {"Resize", resize},
    {"Upsample", resize},
    {"DepthToSpace", depth_and_space},
    {"SpaceToDepth", depth_and_space},
};

}  // namespace

std::span<const Operator> gather_operators() { return gather_table; }

}  // namespace parsim::networks::onnx_reader
