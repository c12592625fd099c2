// Element-wise operators.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "networks/onnx_fold.hpp"
#include "networks/onnx_operators.hpp"

namespace parsim::networks::onnx_reader {

namespace {

using Kind = Value::Kind;

std::string lower(std::string_view op) {
  std::string out(op);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

std::vector<Value> operands(const Builder& builder, const Node& node) {
  std::vector<Value> out;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (const Value* value = builder.find(node, i)) out.push_back(value->without_numbers());
  }
  return out;
}

void several(Builder& builder, const Node& node) {
  builder.output(node, 0, elementwise(builder, node, lower(node.op), operands(builder, node)));
}

/// One operand; what else the node reads (limits, diagonals) are numbers of the formula.
void single(Builder& builder, const Node& node) {
  builder.output(node, 0, elementwise(builder, node, lower(node.op), {builder.operand(node, 0)}));
}

void prelu(Builder& builder, const Node& node) {
  const Value& x = builder.operand(node, 0);
  const Value& slope = builder.operand(node, 1);
  const auto count = elements(slope.dims());
  const bool per_channel = x.is(Kind::activation) && x.batch.axis == 0 && x.batch.merged() == 1 &&
                           x.rank() > 1 && count == x.dims()[1];
  if (slope.is(Kind::activation) || !x.is(Kind::activation) || (count != 1 && !per_channel)) {
    return several(builder, node);
  }
  builder.output(
      node, 0,
      builder.emit(node, Activation{"prelu", *count}, {x}, x.batch, {weights(builder, node, 1)}));
}

void dropout(Builder& builder, const Node& node) {
  const Value x = builder.activation(node, builder.operand(node, 0));
  double rate = 0.5;
  if (const auto* ratio = node.find<double>("ratio")) rate = *ratio;
  if (const Value* ratio = builder.find(node, 1); ratio != nullptr && ratio->is(Kind::constant) &&
                                                  ratio->tensor.known &&
                                                  ratio->tensor.count() == 1) {
    rate = ratio->tensor.real(0);
  }
  if (!(rate >= 0 && rate < 1))
    builder.refuse(node, fmt::format("ratio {}", rate), "a number in [0, 1)");
  builder.output(node, 0, builder.emit(node, Dropout{rate}, {x}, x.batch));
}

/// The same numbers in another type. Precision is the plan's choice, not the graph's.
void cast(Builder& builder, const Node& node) { builder.output(node, 0, builder.operand(node, 0)); }

void identity(Builder& builder, const Node& node) {
  Value value = builder.operand(node, 0);
  // PyTorch's exporter merges weights with equal numbers and writes the copies as Identity. Equal
  // vectors are norms and biases at their initial ones and zeros: separate parameters in truth,
  // each named by its Identity. Equal matrices do not happen by chance: they are tied.
  if (value.is(Kind::weight) && value.rank() <= 1 && !node.outputs.empty()) {
    value.origin = node.outputs[0];
  }
  builder.output(node, 0, std::move(value));
}

/// Scatters into a tensor at given indices; the values written may be computed.
void scatter(Builder& builder, const Node& node) {
  const Value data = builder.activation(node, builder.operand(node, 0));
  const Value& updates = builder.operand(node, 2);
  if (updates.is(Kind::constant)) {
    return builder.output(node, 0, elementwise(builder, node, lower(node.op), {data}));
  }
  const Value written = builder.activation(node, updates);
  if (!written.batch.none() && written.batch != data.batch) {
    builder.refuse(node, "it writes activations into a constant", "an activation as operand 0");
  }
  builder.output(node, 0,
                 builder.emit(node, Rearrange{"scatter", builder.network()[data.layer].out, true},
                              {data, written}, data.batch));
}

/// Elements of a constant at places that are computed, such as types of tokens by position.
void gather_elements(Builder& builder, const Node& node) {
  if (!builder.operand(node, 0).is(Kind::constant)) {
    builder.refuse(node, "it picks elements of activations", "a constant as operand 0");
  }
  const Value places = builder.activation(node, builder.operand(node, 1));
  builder.output(node, 0, elementwise(builder, node, lower(node.op), {places}));
}

/// Random numbers are data, not learned.
void random(Builder& builder, const Node& node) {
  const auto* shape = node.find<std::vector<std::int64_t>>("shape");
  const Extents dims = shape != nullptr ? *shape : builder.operand(node, 0).dims();
  if (!elements(dims))
    builder.refuse(node, fmt::format("its output has shape {}", to_text(dims)),
                   "at most 2^40 elements");
  Value value;
  value.tensor = Tensor::unknown(Element::real, dims);
  builder.output(node, 0, std::move(value));
}

constexpr Operator elementwise_table[] = {
    {"Abs", single},
    {"Acos", single},
    {"Acosh", single},
    {"Add", several},
    {"And", several},
    {"Asin", single},
    {"Asinh", single},
    {"Atan", single},
    {"Atanh", single},
    {"Bernoulli", random},
    {"BitShift", several},
    {"BitwiseAnd", several},
    {"BitwiseNot", single},
    {"BitwiseOr", several},
    {"BitwiseXor", several},
    {"Cast", cast},
    {"CastLike", cast},
    {"Ceil", single},
    {"Celu", single},
    {"Clip", single},
    {"Cos", single},
    {"Cosh", single},
    {"CumSum", single},
    {"Div", several},
    {"Dropout", dropout},
    {"Elu", single},
    {"Equal", several},
    {"Erf", single},
    {"Exp", single},
    {"Floor", single},
    {"Gelu", single},
    {"Greater", several},
    {"GreaterOrEqual", several},
    {"HardSigmoid", single},
    {"HardSwish", single},
    {"Identity", identity},
    {"IsInf", single},
    {"IsNaN", single},
    {"LeakyRelu", single},
    {"Less", several},
    {"LessOrEqual", several},
    {"Log", single},
    {"Max", several},
    {"Mean", several},
    {"Min", several},
    {"Mish", single},
    {"Mod", several},
    {"Mul", several},
    {"Neg", single},
    {"Not", single},
    {"Or", several},
    {"PRelu", prelu},
    {"Pow", several},
    {"RandomNormal", random},
    {"RandomNormalLike", random},
    {"RandomUniform", random},
    {"RandomUniformLike", random},
    {"Reciprocal", single},
    {"Relu", single},
    {"Round", single},
    {"GatherElements", gather_elements},
    {"ScatterElements", scatter},
    {"ScatterND", scatter},
    {"Selu", single},
    {"Shrink", single},
    {"Sigmoid", single},
    {"Sign", single},
    {"Sin", single},
    {"Sinh", single},
    {"Softplus", single},
    {"Softsign", single},
    {"Sqrt", single},
    {"Sub", several},
    {"Sum", several},
    {"Swish", single},
    {"Tan", single},
    {"Tanh", single},
    {"ThresholdedRelu", single},
    {"Trilu", single},
    {"Where", several},
    {"Xor", several},
};

}  // namespace

std::span<const Operator> elementwise_operators() { return elementwise_table; }

Value elementwise(Builder& builder, const Node& node, const std::string& function,
                  const std::vector<Value>& operands) {
  if (operands.empty()) builder.refuse(node, "it has no operands", "at least one");
  Extents dims = operands[0].dims();
  std::vector<Value> computed;
  for (const Value& value : operands) {
    dims = broadcast(dims, value.dims());
    if (!value.is(Kind::constant)) computed.push_back(value);
  }
  if (computed.empty()) computed.push_back(operands[0]);
  if (computed.size() == 1) {
    Value x = builder.activation(node, computed[0]);
    // A constant operand may enlarge the other.
    if (x.dims() != dims) x = builder.expand(node, x, dims);
    return builder.emit(node, Activation{function}, {x}, x.batch);
  }
  std::size_t rank = 0;
  for (const Value& value : computed) rank = std::max(rank, value.rank());
  const Batch batch = builder.common_batch(computed, rank);
  Value out =
      builder.emit(node, Combine{function}, builder.aligned(node, computed, batch, rank), batch);
  return out.dims() == dims ? out : builder.expand(node, out, dims);
}

}  // namespace parsim::networks::onnx_reader
