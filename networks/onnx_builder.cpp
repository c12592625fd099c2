#include "networks/onnx_builder.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/errors.hpp"
#include "networks/onnx_roles.hpp"

namespace parsim::networks::onnx_reader {

namespace {

Extents extents_of(const Shape& shape) {
  Extents out;
  for (const Axis& axis : shape.axes) out.push_back(axis.extent);
  return out;
}

bool reads_maps(const Node& node) {
  return node.op == "Conv" || node.op == "BatchNormalization" || node.op.ends_with("Pool");
}

}  // namespace

Builder::Builder(const Graph& graph, std::string network_name)
    : graph_(graph), outputs_(graph.outputs.begin(), graph.outputs.end()) {
  network_.name = std::move(network_name);
  for (const Node& node : graph.nodes) {
    for (const std::string& input : node.inputs) {
      if (!input.empty()) readers_[input].push_back(&node);
    }
  }
  for (const auto& [name, tensor] : graph.initializers) {
    const bool many = elements(tensor.dims).value_or(0) > 1;
    // One element is a constant of a formula (epsilon, a scale) unless an operator takes it as its
    // weights; several real elements are learned, but for masks of attention.
    const bool weight = tensor.element == Element::real && many && !tensor.mask;
    values_[name] = {
        weight ? Value::Kind::weight : Value::Kind::constant, tensor, name, tensor.dims, {}, {}};
  }
  const GraphInput& first = graph.inputs[0];
  batch_ = first.dims[0];
  for (const GraphInput& input : graph.inputs) {
    const bool same = !input.dims.empty() && input.dims[0] == batch_ &&
                      (input.batch_symbol == first.batch_symbol || input.batch_symbol.empty() ||
                       first.batch_symbol.empty());
    const Batch where = same ? Batch{0, 1, 1} : Batch{};
    const Extents extents = sample_extents(input.dims, where);
    if (extents.size() >= most_axes) {
      throw InputError(fmt::format("{}: input '{}'", graph.file, input.name),
                       fmt::format("{} axes for one sample", extents.size()),
                       fmt::format("at most {}", most_axes - 1));
    }
    const auto& users = readers(input.name);
    const bool map =
        std::any_of(users.begin(), users.end(), [](const Node* node) { return reads_maps(*node); });
    const LayerId layer =
        add_input(network_, layer_name(input.name),
                  shape_of(extents, input_roles(extents.size(), input.element, map)));
    values_[input.name] = {
        Value::Kind::activation, Tensor::unknown(input.element, input.dims), "", {}, layer, where};
  }
}

const Value* Builder::tensor(const std::string& name) const {
  const auto found = values_.find(name);
  return found == values_.end() ? nullptr : &found->second;
}

const Value* Builder::find(const Node& node, std::size_t i) const {
  if (i >= node.inputs.size() || node.inputs[i].empty()) return nullptr;
  const Value* value = tensor(node.inputs[i]);
  if (value == nullptr) {  // its maker has fewer outputs than the file says (Dropout's mask)
    refuse(node, fmt::format("it reads '{}', which is not made in training", node.inputs[i]), "");
  }
  return value;
}

const Value& Builder::operand(const Node& node, std::size_t i) const {
  const Value* value = find(node, i);
  if (value == nullptr)
    refuse(node, fmt::format("operand {} is missing", i),
           "all operands that the operator requires");
  return *value;
}

void Builder::output(const Node& node, std::size_t i, Value value) {
  if (i >= node.outputs.size() || node.outputs[i].empty()) return;
  if (value.is(Value::Kind::constant) && value.tensor.known) {
    // A file of many nodes must not make many large tables.
    known_left_ -= static_cast<std::int64_t>(value.tensor.count());
    if (known_left_ < 0) value.tensor = Tensor::unknown(value.tensor.element, value.tensor.dims);
  }
  values_[node.outputs[i]] = std::move(value);
}

const std::vector<const Node*>& Builder::readers(const std::string& name) const {
  static const std::vector<const Node*> none;
  const auto found = readers_.find(name);
  return found == readers_.end() ? none : found->second;
}

void Builder::refuse(const Node& node, std::string_view found, std::string_view accepted) const {
  throw InputError(fmt::format("{} ({})", location(graph_, node), node.op), found,
                   accepted.empty() ? "" : fmt::format("accepted: {}", accepted));
}

std::string Builder::layer_name(const std::string& wanted) {
  std::string name = wanted.empty() ? "layer" : wanted;
  for (std::int64_t& n = name_counts_[wanted]; !layer_names_.insert(name).second;) {
    name = fmt::format("{}:{}", wanted, ++n + 1);
  }
  return name;
}

ParameterId Builder::parameter(const Node& node, const Value& weight, const Extents& extents) {
  if (elements(weight.base) != elements(extents)) {
    refuse(node, fmt::format("its weights '{}' have shape {}", weight.origin, to_text(weight.base)),
           fmt::format("shape {}, or another of as many elements", to_text(extents)));
  }
  const auto [known, fresh] = parameters_.try_emplace(weight.origin, network_.parameters.size());
  if (!fresh && network_[known->second].extents == extents) return known->second;
  if (!fresh) {
    network_.warnings.push_back(
        fmt::format("weights '{}' are shared as {} and as {}: they are counted twice",
                    weight.origin, to_text(network_[known->second].extents), to_text(extents)));
  }
  network_.parameters.push_back({weight.origin, extents});
  return ParameterId{network_.parameters.size() - 1};
}

LayerId Builder::learned(const Node& node, const Value& weight, const Extents& extents) {
  if (extents.size() >= most_axes) refuse(node, "a learned tensor has too many axes", "at most 7");
  auto layer = learned_.find(weight.origin);
  if (layer == learned_.end()) {
    const auto known = parameters_.find(weight.origin);
    const Extents own = known == parameters_.end() ? extents : network_[known->second].extents;
    const Shape shape = shape_of(own, learned_roles(own));
    const ParameterId id = parameter(node, weight, own);
    const LayerId fresh = add_layer(network_, layer_name(weight.origin), Learned{shape}, {}, {id});
    layer = learned_.emplace(weight.origin, fresh).first;
  }
  return relabel(node, layer->second, extents, learned_roles(extents), "reshape", false);
}

LayerId Builder::relabel(const Node& node, LayerId layer, const Extents& extents,
                         const std::vector<Dim>& roles, std::string what, bool moves_data) {
  if (extents_of(network_[layer].out) == extents) return layer;
  if (extents.size() >= most_axes) refuse(node, "a sample has too many axes", "at most 7");
  return add_layer(network_, layer_name(node.name),
                   Rearrange{std::move(what), shape_of(extents, roles), moves_data}, {layer});
}

Value Builder::wrap(const Node& node, LayerId layer, const Batch& batch) const {
  Extents dims = extents_of(network_[layer].out);
  if (!batch.none() && batch.merged() == 1) {
    dims.insert(dims.begin() + batch.axis, batch_);
  } else if (!batch.none()) {
    std::int64_t& extent = dims[static_cast<std::size_t>(batch.axis)];
    if (extent > most_elements / batch_)
      refuse(node, "its output is too large", "at most 2^40 elements");
    extent *= batch_;
  }
  const auto count = elements(dims);
  if (!count || *count == 0 || dims.size() > most_axes) {
    refuse(node, fmt::format("its output has shape {}", to_text(dims)),
           fmt::format("at most {} axes, none empty, and 2^40 elements", most_axes));
  }
  return {Value::Kind::activation,
          Tensor::unknown(Element::real, std::move(dims)),
          "",
          {},
          layer,
          batch};
}

Value Builder::emit(const Node& node, LayerKind kind, const std::vector<Value>& inputs,
                    const Batch& batch, const std::vector<Value>& weights) {
  std::vector<LayerId> producers;
  std::vector<Shape> shapes;
  for (const Value& value : inputs) {
    ensure(value.is(Value::Kind::activation), "layers read activations");
    producers.push_back(value.layer);
    shapes.push_back(network_[value.layer].out);
  }
  const std::string where = fmt::format("{} ({})", location(graph_, node), node.op);
  const Extents out = extents_of(output_shape(kind, shapes, where));
  if (!elements(out) || out.size() >= most_axes) {
    refuse(node, fmt::format("one sample of its output has shape {}", to_text(out)),
           fmt::format("at most {} axes and 2^40 elements", most_axes - 1));
  }
  const std::vector<ParameterShape> wanted = parameter_shapes(kind, shapes);
  ensure(wanted.size() == weights.size(), "every parameter of a layer is a tensor of the graph");
  std::vector<ParameterId> ids;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    ids.push_back(parameter(node, weights[i], wanted[i].extents));
  }
  const LayerId layer = add_layer(network_, layer_name(node.name), std::move(kind), producers, ids);
  return wrap(node, layer, batch);
}

Value Builder::activation(const Node& node, const Value& value) {
  if (value.is(Value::Kind::activation)) return value;
  if (value.is(Value::Kind::weight)) {
    const Value base = wrap(node, learned(node, value, value.base), {});
    return value.base == value.dims() ? base : expand(node, base, value.dims());
  }
  // A table of numbers costs nothing to deliver, like the training data.
  const auto count = elements(value.dims());
  if (!count || *count == 0 || value.rank() >= most_axes) {
    refuse(node, fmt::format("it reads a constant of shape {}", to_text(value.dims())),
           fmt::format("at most {} axes, none empty, and 2^40 elements", most_axes - 1));
  }
  const std::vector<Dim> roles(value.rank(), Dim::other);
  const LayerId layer = add_input(network_, layer_name(fmt::format("{}.constant", node.name)),
                                  shape_of(value.dims(), roles));
  return wrap(node, layer, {});
}

Extents Builder::sample_extents(const Extents& dims, const Batch& batch) const {
  Extents out = dims;
  if (batch.none()) return out;
  if (batch.merged() == 1) {
    out.erase(out.begin() + batch.axis);
  } else {
    out[static_cast<std::size_t>(batch.axis)] = batch.merged();
  }
  return out;
}

std::size_t Builder::sample_axis(const Node& node, const Value& value, std::size_t axis) const {
  const auto at = static_cast<std::size_t>(std::max(value.batch.axis, 0));
  if (value.batch.none() || axis < at) return axis;
  if (axis == at)
    refuse(node, "it works across samples of the batch", "operators that work on each sample");
  return value.batch.merged() == 1 ? axis - 1 : axis;
}

std::vector<Dim> Builder::roles(const Value& value) const {
  std::vector<Dim> out;
  for (const Axis& axis : network_[value.layer].out.axes) out.push_back(axis.dim);
  return out;
}

}  // namespace parsim::networks::onnx_reader
