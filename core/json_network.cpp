// Networks as JSON.
#include <fmt/format.h>

#include "core/errors.hpp"
#include "core/json.hpp"
#include "core/json_ops.hpp"
#include "core/json_support.hpp"

namespace parsim {

namespace json {

void fields(auto& visit, Of<Layer> auto& layer) {
  visit("name", layer.name);
  visit("kind", layer.kind);
  visit("inputs", layer.inputs);
  visit("parameters", layer.parameters);
  visit("out", layer.out);
}

void fields(auto& visit, Of<Parameter> auto& parameter) {
  visit("name", parameter.name);
  visit("extents", parameter.extents, extents);
}

void fields(auto& visit, Of<Network> auto& network) {
  visit("name", network.name);
  visit("parameters", network.parameters);
  visit("layers", network.layers);
  visit("warnings", network.warnings);
}

namespace {

template <class Extents, class Extent>
void check_size(const Node& node, const Extents& extents, Extent extent) {
  double elements = 1.0;
  for (const auto& axis : extents) elements *= static_cast<double>(extent(axis));
  if (elements > most_elements) {
    node.refuse(fmt::format("{:.3g} elements", elements),
                fmt::format("accepted: at most {:.3g}", most_elements));
  }
}

/// Checks what core/network.hpp promises of a layer, given that all earlier ones are sound.
void check_layer(const Network& network, LayerId id, const Node& node) {
  const Layer& layer = network[id];
  const Node inputs = node["inputs"];
  inputs.each([&](const Node& input) { static_cast<void>(input.integer(index_of(id.index()))); });
  const Node parameters = node["parameters"];
  parameters.each([&](const Node& parameter) {
    static_cast<void>(parameter.integer(index_of(network.parameters.size())));
  });

  const std::vector<Shape> in = input_shapes(network, id);
  if (layer.kind.as<Input>() != nullptr) {
    if (!layer.inputs.empty()) inputs.refuse("accepted: an input layer has no inputs");
  } else if (const Shape made = shape_made(layer.kind, in, node); made != layer.out) {
    node["out"].refuse(to_text(layer.out), fmt::format("the layer makes {}", to_text(made)));
  }
  check_size(node["out"], layer.out.axes, [](const Axis& axis) { return axis.extent; });

  const std::vector<ParameterShape> wanted = parameter_shapes(layer.kind, in);
  if (layer.parameters.size() != wanted.size()) {
    parameters.refuse(fmt::format("accepted: {} parameters", wanted.size()));
  }
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const Parameter& parameter = network[layer.parameters[i]];
    if (parameter.extents == wanted[i].extents) continue;
    parameters.refuse(fmt::format("parameter '{}' of extents [{}]", parameter.name,
                                  fmt::join(parameter.extents, ", ")),
                      fmt::format("the layer's {} have extents [{}]", wanted[i].name,
                                  fmt::join(wanted[i].extents, ", ")));
  }
}

}  // namespace

void put_special(Writer& out, const Network& network) {
  out.open_object();
  put_fields(out, network);
  out.close_object();
}

void put_special_schema(Writer& out, const Network& network) {
  put_object_schema(out, [&](FieldSchema& visit) { fields(visit, network); });
}

void get_special(const Node& node, Network& network) {
  get_fields(node, network);
  std::size_t next = 0;
  node["parameters"].each([&](const Node& parameter) {
    check_size(parameter["extents"], network.parameters[next++].extents,
               [](std::int64_t extent) { return extent; });
  });
  next = 0;
  node["layers"].each([&](const Node& layer) { check_layer(network, LayerId{next++}, layer); });
}

}  // namespace json

}  // namespace parsim
