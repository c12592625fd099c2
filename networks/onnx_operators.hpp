// One function per ONNX operator (or family): reads a node's operands from the builder, adds
// layers, sets its outputs. Adding an operator = one function in the file of its family and one
// line in its table.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "networks/onnx_builder.hpp"

namespace parsim::networks::onnx_reader {

struct Operator {
  std::string_view name;
  void (*apply)(Builder&, const Node&);
};

// The families, each in a file of its name.
[[nodiscard]] std::span<const Operator> elementwise_operators();
[[nodiscard]] std::span<const Operator> window_operators();  // convolution, pooling
[[nodiscard]] std::span<const Operator> norm_operators();
[[nodiscard]] std::span<const Operator> matmul_operators();  // Gemm, MatMul, Einsum
[[nodiscard]] std::span<const Operator> layout_operators();  // Reshape, Transpose, Slice, …
[[nodiscard]] std::span<const Operator> gather_operators();  // Gather, Expand, Pad, Resize, …
[[nodiscard]] std::span<const Operator> reduce_operators();  // Reduce*, Softmax, losses

/// Applies a node: folds it if all operands are constants, else adds its layers.
/// Throws InputError for an unknown operator or one whose operands do not fit.
void apply(Builder& builder, const Node& node);

// Shared by several families.

/// Operand `i` as the learned tensor of a layer (convolution, dense, norm …): a weight, or a
/// constant, which counts as learned here. Throws InputError if the graph computes it.
[[nodiscard]] Value weights(const Builder& builder, const Node& node, std::size_t i);
/// Operand `i`; as a weight if it is a matrix of real numbers, which some exporters write as a node
/// Constant where others write an initializer.
[[nodiscard]] Value matrix(const Builder& builder, const Node& node, std::size_t i);
/// The tensors of operands as fold() wants them; nullptr for what is left out or not constant.
[[nodiscard]] std::vector<const Tensor*> constants(const Builder& builder, const Node& node);
/// An element-wise layer over the values; constants among them cost nothing.
[[nodiscard]] Value elementwise(Builder& builder, const Node& node, const std::string& function,
                                const std::vector<Value>& operands);
/// The activation with its axes in another order: axis i of the result is axis order[i].
[[nodiscard]] Value permuted(Builder& builder, const Node& node, const Value& value,
                             const std::vector<std::size_t>& order);
/// Matmul of two activations over their last two axes, batches of matrices broadcast.
[[nodiscard]] Value batched_matmul(Builder& builder, const Node& node, Value left, Value right);

/// Einsum of two operands.
void einsum(Builder& builder, const Node& node);

}  // namespace parsim::networks::onnx_reader
