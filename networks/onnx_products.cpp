// Matmuls: dense layers where one operand is learned, MatMul where both are activations.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "networks/onnx_operators.hpp"

namespace parsim::networks::onnx_reader {

namespace {

using Kind = Value::Kind;

/// x times learned weights over its last axis. `bias`: the operand that is the bias, if any.
Value dense(Builder& builder, const Node& node, const Value& x, Value weight, std::int64_t units,
            const Value* bias) {
  const auto last = static_cast<int>(x.rank()) - 1;
  if (x.rank() < 1 || x.batch.axis == last) {
    builder.refuse(node, "it multiplies across samples of the batch",
                   "operators that work on each sample");
  }
  const auto wanted = elements(std::vector{units, x.dims().back()});
  if (units < 1 || !wanted || elements(weight.base) != wanted) {
    builder.refuse(node,
                   fmt::format("weights '{}' of shape {} do not fit an operand of shape {}",
                               weight.origin, to_text(weight.dims()), to_text(x.dims())),
                   "as many rows as the last axis of the operand has elements");
  }
  std::vector<Value> learned{std::move(weight)};
  if (bias != nullptr) learned.push_back(*bias);
  return builder.emit(node, Dense{units, bias != nullptr}, {x}, x.batch, learned);
}

/// The Add of a bias vector that alone reads the result of `node`, or nullptr. Sets `bias`.
const Node* following_bias(const Builder& builder, const Node& node, std::int64_t units,
                           Value& bias) {
  const std::string& out = node.outputs.empty() ? node.name : node.outputs[0];
  const auto& readers = builder.readers(out);
  if (readers.size() != 1 || readers[0]->op != "Add" || readers[0]->inputs.size() != 2 ||
      builder.is_output(out)) {
    return nullptr;
  }
  const Node& add = *readers[0];
  const Value* other = builder.tensor(add.inputs[add.inputs[0] == out ? 1 : 0]);
  if (other == nullptr || !other->is(Kind::weight) || other->dims() != Extents{units} ||
      other->base != other->dims()) {
    return nullptr;
  }
  bias = *other;
  return &add;
}

void matmul(Builder& builder, const Node& node) {
  Value left = builder.operand(node, 0);
  const Value right =
      left.is(Kind::activation) ? matrix(builder, node, 1) : builder.operand(node, 1);
  const bool learned = right.is(Kind::weight) && right.rank() == 2 && right.base == right.dims();
  // Of two learned operands the left one is data (coordinates of relative positions).
  if (learned && left.is(Kind::weight)) left.kind = Kind::constant;
  if (!learned) {
    const Value result = batched_matmul(builder, node, builder.activation(node, left),
                                        builder.activation(node, right));
    return builder.output(node, 0, result);
  }
  const Value x = builder.activation(node, left);
  const std::int64_t units = right.dims()[1];
  if (x.rank() == 0 || x.dims().back() != right.dims()[0]) {
    builder.refuse(node,
                   fmt::format("an operand of shape {} does not fit weights of shape {}",
                               to_text(x.dims()), to_text(right.dims())),
                   "shapes … × k and k × n");
  }
  Value bias;
  const Node* add = following_bias(builder, node, units, bias);
  const Value out = dense(builder, node, x, right, units, add == nullptr ? nullptr : &bias);
  builder.output(node, 0, out);
  if (add != nullptr) {
    builder.output(*add, 0, out);
    builder.done.insert(add);
  }
}

void gemm(Builder& builder, const Node& node) {
  Value x = builder.activation(node, builder.operand(node, 0));
  const Value& w = builder.operand(node, 1);
  const Value* c = builder.find(node, 2);
  if (x.rank() != 2 || w.rank() != 2) {
    builder.refuse(
        node, fmt::format("operands of shapes {} and {}", to_text(x.dims()), to_text(w.dims())),
        "two matrices");
  }
  if (node.integer("transA", 0) != 0) x = permuted(builder, node, x, {1, 0});
  const bool transposed = node.integer("transB", 0) != 0;
  const std::int64_t units = w.dims()[transposed ? 0 : 1];
  if (w.dims()[transposed ? 1 : 0] != x.dims()[1]) {
    builder.refuse(node,
                   fmt::format("operands of shapes {} and {} with transB={}", to_text(x.dims()),
                               to_text(w.dims()), transposed ? 1 : 0),
                   "shapes m × k and k × n");
  }
  Value out;
  bool added = c == nullptr;
  if (w.is(Kind::activation)) {
    const Value right = transposed ? permuted(builder, node, w, {1, 0}) : w;
    out = batched_matmul(builder, node, x, right);
  } else {
    Value bias;
    const bool vector = c != nullptr && !c->is(Kind::activation) && c->rank() <= 2 &&
                        elements(c->dims()) == units && c->dims().back() == units;
    if (vector) {
      bias = weights(builder, node, 2);
      bias.base = bias.tensor.dims = {units};
      added = true;
    }
    out = dense(builder, node, x, weights(builder, node, 1), units, vector ? &bias : nullptr);
  }
  if (!added) out = elementwise(builder, node, "add", {out, *c});
  builder.output(node, 0, out);
}

constexpr Operator matmuls_table[] = {{"MatMul", matmul}, {"Gemm", gemm}, {"Einsum", einsum}};

}  // namespace

std::span<const Operator> matmul_operators() { return matmuls_table; }

Value batched_matmul(Builder& builder, const Node& node, Value left, Value right) {
  const auto across = [&] {
    builder.refuse(node, "it multiplies across samples of the batch",
                   "operators that work on each sample");
  };
  if (left.rank() == 0 || right.rank() == 0)
    builder.refuse(node, "an operand is a scalar", "vectors and matrices");
  const auto with = [](Extents dims, std::size_t at, std::int64_t extent) {
    dims.insert(dims.begin() + static_cast<std::ptrdiff_t>(at), extent);
    return dims;
  };
  const auto without = [](Extents dims, std::size_t from_end) {
    dims.erase(dims.end() - static_cast<std::ptrdiff_t>(from_end));
    return dims;
  };
  // Vectors are matrices of one row or column, which goes away afterwards.
  if (left.rank() == 1) {
    const Value row = builder.reshape(node, left, with(left.dims(), 0, 1));
    const std::size_t columns = right.rank() == 1 ? 0 : 1;  // of a vector none is left
    const Value out = batched_matmul(builder, node, row, std::move(right));
    return builder.reshape(node, out, without(out.dims(), columns + 1));
  }
  if (right.rank() == 1) {
    const Value column = builder.reshape(node, right, with(right.dims(), 1, 1));
    const Value out = batched_matmul(builder, node, std::move(left), column);
    return builder.reshape(node, out, without(out.dims(), 1));
  }
  const int rows = static_cast<int>(left.rank()) - 2, columns = static_cast<int>(right.rank()) - 1;
  if (left.batch.axis == rows + 1 || right.batch.axis == columns - 1) across();
  if (right.batch.axis == columns) {
    if (!left.batch.none() && left.batch.axis == rows) across();  // samples with samples
    // (A B)ᵀ = Bᵀ Aᵀ has the samples in its rows.
    const auto flipped = [&](const Value& value) {
      std::vector<std::size_t> order(value.rank());
      std::iota(order.begin(), order.end(), 0);
      std::swap(order[order.size() - 1], order[order.size() - 2]);
      return permuted(builder, node, value, order);
    };
    return flipped(batched_matmul(builder, node, flipped(right), flipped(left)));
  }
  const std::size_t rank = std::max(left.rank(), right.rank());
  if (!left.batch.none() && left.batch.axis == rows) {
    if (!right.batch.none()) across();
    Batch batch = left.batch;
    batch.axis += static_cast<int>(rank - left.rank());
    if (batch.merged() > 1) return builder.emit(node, MatMul{}, {left, right}, batch);
    // One row per sample: the row axis is the batch, so a row axis of one is put behind it.
    left = builder.reshape(node, left, with(left.dims(), left.rank() - 1, 1), left.batch);
    if (right.rank() > 2)
      right = builder.reshape(node, right, with(right.dims(), right.rank() - 2, 1));
    const Value out = batched_matmul(builder, node, left, right);
    return builder.reshape(node, out, without(out.dims(), 2), batch);
  }
  const Batch batch = builder.common_batch(std::vector{left, right}, rank);
  return builder.emit(node, MatMul{}, builder.aligned(node, {left, right}, batch, rank), batch);
}

}  // namespace parsim::networks::onnx_reader
