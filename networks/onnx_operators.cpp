#include "networks/onnx_operators.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/errors.hpp"
#include "networks/onnx_fold.hpp"

namespace parsim::networks::onnx_reader {

namespace {

using Kind = Value::Kind;
using Table = std::map<std::string_view, void (*)(Builder&, const Node&)>;

/// The shape of a tensor is constant even if its elements are not.
void shape(Builder& builder, const Node& node) {
  const Extents& dims = builder.operand(node, 0).dims();
  const auto rank = static_cast<std::int64_t>(dims.size());
  const auto clipped = [&](std::int64_t at) {
    return std::clamp(at < 0 ? at + rank : at, std::int64_t{0}, rank);
  };
  const std::int64_t begin = clipped(std::max(node.integer("start", 0), -rank));
  const std::int64_t end = std::max(begin, clipped(std::max(node.integer("end", rank), -rank)));
  Value out;
  out.tensor = Tensor::of({end - begin}, Extents(dims.begin() + begin, dims.begin() + end));
  builder.output(node, 0, std::move(out));
}

void size(Builder& builder, const Node& node) {
  Value out;
  out.tensor = Tensor::of({}, {elements(builder.operand(node, 0).dims()).value_or(0)});
  builder.output(node, 0, std::move(out));
}

/// Operators on constants only; a network that computes their operands cannot be planned.
void constant_only(Builder& builder, const Node& node) {
  builder.refuse(node, "its operands are computed by the network", "constant operands");
}

constexpr Operator constant_operators[] = {
    {"Shape", shape},
    {"Size", size},
    {"Constant", constant_only},
    {"ConstantOfShape", constant_only},
    {"Range", constant_only},
    {"EyeLike", constant_only},
};

const Table& table() {
  static const Table all = [] {
    Table out;
    for (const auto family :
         {std::span<const Operator>(constant_operators), elementwise_operators(),
          window_operators(), norm_operators(), matmul_operators(), layout_operators(),
          gather_operators(), reduce_operators()}) {
      for (const Operator& entry : family) out.emplace(entry.name, entry.apply);
    }
    return out;
  }();
  return all;
}

bool draws_random(const std::string& op) { return op.starts_with("Random") || op == "Bernoulli"; }

/// Folds the node if all its operands are constants. False if it is not an operator on constants.
bool fold_node(Builder& builder, const Node& node) {
  std::size_t given = 0;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const Value* value = builder.find(node, i);
    if (value == nullptr) continue;
    if (!value->is(Kind::constant)) return false;
    ++given;
  }
  if (draws_random(node.op) || node.op == "Shape" || node.op == "Size") return false;
  auto results = fold(node, constants(builder, node), builder.graph().opset);
  if (!results) return false;
  for (std::size_t i = 0; i < results->size(); ++i) {
    Value out;
    out.tensor = std::move((*results)[i]);
    out.base = out.tensor.dims;
    // A constant that an operator takes as its weights is known by the tensor it came from.
    const bool same =
        given == 1 && (node.op == "Identity" || node.op == "Transpose" || node.op == "Cast");
    out.origin = same                      ? builder.operand(node, 0).origin
                 : i < node.outputs.size() ? node.outputs[i]
                                           : std::string{};
    builder.output(node, i, std::move(out));
  }
  return true;
}

}  // namespace

void apply(Builder& builder, const Node& node) {
  if (builder.done.contains(&node)) return;
  const auto found = table().find(node.op);
  if (found == table().end()) {
    std::vector<std::string> known;
    for (const auto& [name, function] : table()) known.emplace_back(name);
    throw InputError(location(builder.graph(), node),
                     fmt::format("operator '{}' is not supported", node.op),
                     fmt::format("accepted: {} operators of ONNX{}", known.size(),
                                 did_you_mean(node.op, known)));
  }
  try {
    if (!fold_node(builder, node)) found->second(builder, node);
  } catch (const FoldError& error) {
    builder.refuse(node, error.what(), "");
  }
}

Value weights(const Builder& builder, const Node& node, std::size_t i) {
  Value value = builder.operand(node, i);
  if (value.is(Kind::activation) || (value.is(Kind::weight) && value.base != value.dims())) {
    builder.refuse(node,
                   fmt::format("its weights '{}' are computed by the network", node.inputs[i]),
                   "an initializer");
  }
  if (value.is(Kind::constant)) {
    value.kind = Kind::weight;
    value.base = value.dims();
    if (value.origin.empty()) value.origin = node.inputs[i];
  }
  return value;
}

Value matrix(const Builder& builder, const Node& node, std::size_t i) {
  const Value& value = builder.operand(node, i);
  const bool learned = value.is(Kind::constant) && value.tensor.element == Element::real &&
                       value.rank() == 2 && elements(value.dims()).value_or(0) > 1;
  return learned ? weights(builder, node, i) : value;
}

std::vector<const Tensor*> constants(const Builder& builder, const Node& node) {
  std::vector<const Tensor*> out;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    const Value* value = builder.find(node, i);
    out.push_back(value != nullptr && value->is(Kind::constant) ? &value->tensor : nullptr);
  }
  return out;
}

}  // namespace parsim::networks::onnx_reader
