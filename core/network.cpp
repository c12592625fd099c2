#include "core/network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "core/errors.hpp"
#include "core/hash.hpp"

namespace parsim {

std::int64_t Parameter::elements() const {
  std::int64_t count = 1;
  for (const std::int64_t extent : extents) count *= extent;
  return count;
}

LayerId add_input(Network& network, std::string name, Shape shape) {
  network.layers.push_back({std::move(name), Input{}, {}, {}, std::move(shape)});
  return LayerId{network.layers.size() - 1};
}

namespace {

/// Plans look at all operands for each reader of a tensor. Throws InputError.
void expect_few_of_each(std::vector<LayerId> inputs, const std::string& where) {
  constexpr std::size_t most = 512;
  if (inputs.size() <= most) return;
  std::sort(inputs.begin(), inputs.end());
  for (std::size_t i = most; i < inputs.size(); ++i) {
    if (inputs[i] != inputs[i - most]) continue;
    throw InputError(where, fmt::format("one tensor more than {} times as an operand", most),
                     fmt::format("accepted: at most {} times", most));
  }
}

}  // namespace

LayerId add_layer(Network& network, std::string name, LayerKind kind, std::vector<LayerId> inputs,
                  std::vector<ParameterId> shared) {
  std::vector<Shape> shapes;
  for (const LayerId id : inputs) {
    ensure(id.valid() && id.index() < network.layers.size(), "a layer's inputs exist already");
    shapes.push_back(network[id].out);
  }
  Layer layer{std::move(name), std::move(kind), std::move(inputs), {}, {}};
  const std::string where = fmt::format("{}: layer '{}'", network.name, layer.name);
  expect_few_of_each(layer.inputs, where);
  layer.out = output_shape(layer.kind, shapes, where);
  const std::vector<ParameterShape> wanted = parameter_shapes(layer.kind, shapes);
  if (!shared.empty()) {
    ensure(shared.size() == wanted.size(), "a layer shares all of its parameters or none");
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (network[shared[i]].extents != wanted[i].extents) {
        throw InputError(
            where, fmt::format("shared parameter '{}' has other extents", network[shared[i]].name),
            fmt::format("[{}]", fmt::join(wanted[i].extents, ", ")));
      }
    }
    layer.parameters = std::move(shared);
  } else {
    for (const ParameterShape& shape : wanted) {
      layer.parameters.emplace_back(network.parameters.size());
      network.parameters.push_back({layer.name + "." + shape.name, shape.extents});
    }
  }
  network.layers.push_back(std::move(layer));
  return LayerId{network.layers.size() - 1};
}

std::vector<Shape> input_shapes(const Network& network, LayerId layer) {
  std::vector<Shape> shapes;
  for (const LayerId id : network[layer].inputs) shapes.push_back(network[id].out);
  return shapes;
}

std::int64_t parameter_count(const Network& network) {
  std::int64_t count = 0;
  for (const Parameter& parameter : network.parameters) count += parameter.elements();
  return count;
}

namespace {

/// Experts that a token goes to, of a layer of experts; nothing if no router is before it.
std::optional<std::int64_t> experts_of_token(const Network& network, const Layer& layer) {
  const Layer* before = &layer;
  while (!before->inputs.empty() && before->kind.as<ExpertDispatch>() == nullptr) {
    before = &network[before->inputs[0]];
  }
  const auto* dispatch = before->kind.as<ExpertDispatch>();
  return dispatch == nullptr ? std::nullopt : std::optional<std::int64_t>(dispatch->top_k);
}

}  // namespace

void set_expert_imbalance(Network& network, double imbalance, std::string_view where) {
  double most = 0;
  std::int64_t experts = 0, of_token = 1;  // of the layer that allows most
  for (Layer& layer : network.layers) {
    auto* dense = std::get_if<ExpertDense>(&layer.kind.value);
    if (dense == nullptr) continue;
    // At most all tokens come to the busiest expert, each once.
    const std::int64_t all = layer.out.axes[0].extent;
    const std::int64_t each = experts_of_token(network, layer).value_or(1);
    const double largest = static_cast<double>(all) / static_cast<double>(each);
    dense->imbalance = std::min(imbalance, largest);
    if (largest <= most) continue;
    most = largest;
    experts = all;
    of_token = each;
  }
  std::erase_if(network.warnings, [](const std::string& warning) {  // that they are balanced
    return warning.find("--expert-imbalance") != std::string::npos;
  });
  if (imbalance >= 1 && imbalance <= most) return;
  throw InputError(where, fmt::format("{} in '{}'", imbalance, network.name),
                   most == 0 ? "accepted: with a mixture of experts"
                             : fmt::format("accepted: 1 to {:.6g}, as a token goes to {} of {} "
                                           "experts",
                                           most, of_token, experts));
}

std::int64_t active_parameter_count(const Network& network) {
  std::int64_t count = parameter_count(network);
  for (const Layer& layer : network.layers) {
    if (layer.kind.as<ExpertDense>() == nullptr) continue;
    const auto of_token = experts_of_token(network, layer);
    if (!of_token) continue;
    const std::int64_t experts = layer.out.axes[0].extent;
    for (const ParameterId id : layer.parameters) {
      count -= network[id].elements() / experts * (experts - *of_token);
    }
  }
  return count;
}

std::string fingerprint(const Network& network) {
  std::uint64_t hash = network.layers.size();
  for (const Parameter& parameter : network.parameters)
    hash = hash_combine(hash, hash_of(parameter.extents));
  for (const Layer& layer : network.layers) {
    hash = hash_combine(hash, layer.kind.value.index());
    for (const Axis& axis : layer.out.axes) hash = hash_combine(hash, axis.extent);
  }
  return fmt::format("{:016x}", hash);
}

Flops forward_flops_per_sample(const Network& network) {
  Flops sum;
  for (std::size_t i = 0; i < network.layers.size(); ++i) {
    const Layer& layer = network.layers[i];
    const std::vector<Shape> shapes = input_shapes(network, LayerId{i});
    sum += forward_flops(layer.kind, shapes, layer.out, {whole(layer.out, 1), {}});
  }
  return sum;
}

std::vector<std::vector<Consumer>> consumers(const Network& network) {
  std::vector<std::vector<Consumer>> all(network.layers.size());
  for (std::size_t i = 0; i < network.layers.size(); ++i) {
    const std::vector<LayerId>& inputs = network.layers[i].inputs;
    for (std::size_t k = 0; k < inputs.size(); ++k)
      all[inputs[k].index()].push_back({LayerId{i}, k});
  }
  return all;
}

}  // namespace parsim
