// Normalisation.
#include <fmt/format.h>

#include <algorithm>

#include "networks/onnx_fold.hpp"
#include "networks/onnx_operators.hpp"

namespace parsim::networks::onnx_reader {

namespace {

using Kind = Value::Kind;

/// True if the operand is a constant whose numbers are all `number`: a norm without learned scale
/// is written with ones and zeros.
bool all_equal(const Value& value, double number) {
  const Tensor& tensor = value.tensor;
  if (!value.is(Kind::constant) || !tensor.known) return false;
  for (std::size_t i = 0; i < tensor.count(); ++i) {
    if (tensor.real(i) != number) return false;
  }
  return true;
}

/// Normalisation with scale and shift per channel.
void per_channel(Builder& builder, const Node& node, NormKind kind, std::int64_t size) {
  const Value x = builder.activation(node, builder.operand(node, 0));
  const Value map = builder.as_map(node, x);
  if (x.batch.merged() > 1 && kind != NormKind::batch) {
    builder.refuse(node, "it normalises several feature maps of a sample separately",
                   "one feature map per sample");
  }
  Norm norm{kind, false, size};
  std::vector<Value> learned;
  if (kind != NormKind::local_response) {
    norm.affine =
        !(all_equal(builder.operand(node, 1), 1) && all_equal(builder.operand(node, 2), 0));
  }
  if (norm.affine) {
    learned = {weights(builder, node, 1), weights(builder, node, 2)};
    for (const Value& weight : learned) {
      if (weight.dims() != Extents{x.dims()[1]}) {
        builder.refuse(node,
                       fmt::format("'{}' of shape {} is applied to {} channels", weight.origin,
                                   to_text(weight.dims()), x.dims()[1]),
                       "one element per channel");
      }
    }
  }
  const Value out = builder.emit(node, norm, {map}, map.batch, learned);
  builder.output(node, 0, builder.from_map(node, out, x.batch));
}

// Operands 3 and 4, the running mean and variance, are statistics: not learned, not read.
void batch_norm(Builder& builder, const Node& node) {
  per_channel(builder, node, NormKind::batch, 0);
}

void instance_norm(Builder& builder, const Node& node) {
  per_channel(builder, node, NormKind::instance, 0);
}

void group_norm(Builder& builder, const Node& node) {
  per_channel(builder, node, NormKind::group, node.integer("num_groups", 0));
}

void local_response(Builder& builder, const Node& node) {
  const std::int64_t size = node.integer("size", 0);
  if (size < 1 || size > most_elements)
    builder.refuse(node, fmt::format("size {}", size), "1 or more");
  per_channel(builder, node, NormKind::local_response, size);
}

void layer_norm(Builder& builder, const Node& node) {
  const Value x = builder.activation(node, builder.operand(node, 0));
  const std::size_t axis = normal_axis(node.integer("axis", -1), x.rank());
  if (x.batch.axis >= static_cast<int>(axis)) {
    builder.refuse(node, "it works across samples of the batch",
                   "operators that work on each sample");
  }
  // Several axes are normalised together: seen as one, then taken apart again.
  Extents joined(x.dims().begin(), x.dims().begin() + static_cast<std::ptrdiff_t>(axis));
  joined.push_back(elements(std::span(x.dims()).subspan(axis)).value_or(0));
  const Extents width{joined.back()};
  const Value flat = builder.reshape(node, x, joined, x.batch);
  const bool shift = builder.find(node, 2) != nullptr;
  std::vector<Value> learned;
  for (std::size_t i = 1; i <= (shift ? 2U : 1U); ++i) {
    Value weight = weights(builder, node, i);
    if (elements(weight.dims()) != width[0]) {
      builder.refuse(node,
                     fmt::format("'{}' of shape {} is applied to {} normalised elements",
                                 weight.origin, to_text(weight.dims()), width[0]),
                     "one element for each");
    }
    weight.base = weight.tensor.dims = width;
    learned.push_back(std::move(weight));
  }
  Value out = shift ? builder.emit(node, Norm{NormKind::layer, true, 0}, {flat}, x.batch, learned)
                    : builder.emit(node, Norm{NormKind::layer, false, 0}, {flat}, x.batch);
  if (!shift) out = elementwise(builder, node, "mul", {out, learned[0]});
  builder.output(node, 0, builder.reshape(node, out, x.dims(), x.batch));
}

constexpr Operator norms_table[] = {
    {"BatchNormalization", batch_norm},
    {"InstanceNormalization", instance_norm},
    {"GroupNormalization", group_norm},
    {"LayerNormalization", layer_norm},
    {"LRN", local_response},
};

}  // namespace

std::span<const Operator> norm_operators() { return norms_table; }

}  // namespace parsim::networks::onnx_reader
