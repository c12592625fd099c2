// Operators that sum up axes, and the losses.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "networks/onnx_fold.hpp"
#include "networks/onnx_operators.hpp"

namespace parsim::networks::onnx_reader {

namespace {

using Kind = Value::Kind;

/// A mean or maximum over all spatial axes of a map is a pooling over the whole map.
bool pools(const Value& x, const std::vector<std::size_t>& axes, const std::vector<Dim>& roles) {
  if (x.batch.axis != 0 || x.batch.merged() != 1 || x.rank() < 4 || axes.size() + 2 != x.rank() ||
      axes[0] != 2) {
    return false;
  }
  return roles[0] == Dim::channel && std::all_of(roles.begin() + 1, roles.end(), [](Dim dim) {
           return dim == Dim::depth || dim == Dim::height || dim == Dim::width;
         });
}

void reduce(Builder& builder, const Node& node) {
  static const std::map<std::string, std::string> functions{{"ReduceMean", "mean"},
                                                            {"ReduceSum", "sum"},
                                                            {"ReduceMax", "max"},
                                                            {"ReduceMin", "min"},
                                                            {"ReduceProd", "prod"},
                                                            {"ReduceL1", "l1"},
                                                            {"ReduceL2", "l2"},
                                                            {"ReduceLogSum", "log-sum"},
                                                            {"ReduceLogSumExp", "log-sum-exp"},
                                                            {"ReduceSumSquare", "sum-square"}};
  const Value x = builder.activation(node, builder.operand(node, 0));
  if (builder.find(node, 1) != nullptr && !builder.operand(node, 1).is(Kind::constant)) {
    builder.refuse(node, "its axes are computed by the network", "constant axes");
  }
  const auto in = constants(builder, node);
  auto axes = axes_of(node, in.size() > 1 ? in[1] : nullptr, x.rank());
  if (axes.empty()) {
    if (node.integer("noop_with_empty_axes", 0) != 0) return builder.output(node, 0, x);
    for (std::size_t i = 0; i < x.rank(); ++i) axes.push_back(i);
  }
  const bool keep = node.integer("keepdims", 1) != 0;
  const std::string& function = functions.at(node.op);
  Extents dims;
  for (std::size_t i = 0; i < x.rank(); ++i) {
    const bool gone = std::binary_search(axes.begin(), axes.end(), i);
    if (!gone || keep) dims.push_back(gone ? 1 : x.dims()[i]);
  }
  if (pools(x, axes, builder.roles(x)) && (function == "mean" || function == "max")) {
    Pool pool{function == "mean" ? PoolKind::average : PoolKind::max, {}, false, true};
    for (const std::size_t axis : axes) pool.windows.push_back({x.dims()[axis], 1, 0, 0, 1});
    const Value out = builder.emit(node, pool, {x}, x.batch);
    return builder.output(node, 0, builder.reshape(node, out, dims, x.batch));
  }
  Reduce layer{function, {}, keep};
  Batch batch = x.batch;
  for (const std::size_t axis : axes) {
    layer.axes.push_back(builder.sample_axis(node, x, axis));
    if (!keep && static_cast<int>(axis) < x.batch.axis) --batch.axis;
  }
  builder.output(node, 0, builder.emit(node, layer, {x}, batch));
}

void softmax(Builder& builder, const Node& node) {
  Value x = builder.activation(node, builder.operand(node, 0));
  const Extents dims = x.dims();
  const Batch batch = x.batch;
  // Up to opset 12 everything from the axis on is one axis, and that is axis 1 unless given.
  const bool joined = builder.graph().opset < 13;
  std::size_t axis = normal_axis(node.integer("axis", joined ? 1 : -1), x.rank());
  if (joined && axis + 1 < x.rank() && static_cast<int>(axis) > batch.axis) {
    Extents flat(dims.begin(), dims.begin() + static_cast<std::ptrdiff_t>(axis));
    flat.push_back(elements(std::span(dims).subspan(axis)).value_or(0));
    x = builder.reshape(node, x, flat, batch);
  }
  Value out = builder.emit(node, Softmax{builder.sample_axis(node, x, axis)}, {x}, batch);
  if (node.op == "LogSoftmax") out = builder.emit(node, Activation{"log"}, {out}, batch);
  builder.output(node, 0, builder.reshape(node, out, dims, batch));
}

/// The loss of a training graph; its labels are not an input of the network.
void loss(Builder& builder, const Node& node) {
  const Value scores = builder.activation(node, builder.operand(node, 0));
  builder.output(node, 0, builder.emit(node, Loss{}, {scores}, {}));
}

void not_trained(Builder& builder, const Node& node) {
  builder.refuse(node, "it has no gradient, so the graph cannot be trained",
                 "a graph that ends before it");
}

constexpr Operator reduce_table[] = {
    {"ReduceMean", reduce},
    {"ReduceSum", reduce},
    {"ReduceMax", reduce},
    {"ReduceMin", reduce},
    {"ReduceProd", reduce},
    {"ReduceL1", reduce},
    {"ReduceL2", reduce},
    {"ReduceLogSum", reduce},
    {"ReduceLogSumExp", reduce},
    {"ReduceSumSquare", reduce},
    {"Softmax", softmax},
    {"LogSoftmax", softmax},
    {"SoftmaxCrossEntropyLoss", loss},
    {"NegativeLogLikelihoodLoss", loss},
    {"ArgMax", not_trained},
    {"ArgMin", not_trained},
    {"TopK", not_trained},
    {"NonZero", not_trained},
};

}  // namespace

std::span<const Operator> reduce_operators() { return reduce_table; }

}  // namespace parsim::networks::onnx_reader
