// read_onnx: from a file to a Network.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/errors.hpp"
#include "networks/networks.hpp"
#include "networks/onnx_operators.hpp"

namespace parsim::networks {

namespace {

using onnx_reader::Builder;
using onnx_reader::Graph;
using onnx_reader::Node;
using onnx_reader::Value;

/// A norm, or the mean that exporters before opset 17 write layer normalisation with.
bool normalises(const Layer& layer) {
  const Reduce* reduce = layer.kind.as<Reduce>();
  return layer.kind.as<Norm>() != nullptr || (reduce != nullptr && reduce->function == "mean");
}

/// True if BatchNorm seems to have been folded into the convolutions, as exporters do for
/// inference. The network then has no normalisation of any kind, and its convolutions have biases:
/// either with names that the exporter made up because the weights are no longer the model's
/// ("onnx::Conv_497"), or right before a residual sum, which networks without normalisation do not
/// have.
bool norms_are_folded(const Network& network) {
  if (std::any_of(network.layers.begin(), network.layers.end(), normalises)) return false;
  const auto biased = [&](LayerId id) {
    const Conv* conv = network[id].kind.as<Conv>();
    return conv != nullptr && conv->bias;
  };
  for (std::size_t i = 0; i < network.layers.size(); ++i) {
    const Layer& layer = network.layers[i];
    if (biased(LayerId{i}) && network[layer.parameters[0]].name.starts_with("onnx::Conv_")) {
      return true;
    }
    const Combine* sum = layer.kind.as<Combine>();
    if (sum != nullptr && sum->function == "add" && layer.inputs.size() == 2 &&
        std::any_of(layer.inputs.begin(), layer.inputs.end(), biased)) {
      return true;
    }
  }
  return false;
}

/// Warns of an embedding table and a dense layer of the same shape: in most language models they
/// are one tied weight, which exporters copy when they transpose it.
void warn_of_untied(Network& network) {
  for (const Layer& table : network.layers) {
    const Embedding* embedding = table.kind.as<Embedding>();
    if (embedding == nullptr) continue;
    for (const Layer& layer : network.layers) {
      if (layer.kind.as<Dense>() == nullptr || layer.parameters[0] == table.parameters[0] ||
          network[layer.parameters[0]].extents != network[table.parameters[0]].extents) {
        continue;
      }
      network.warnings.push_back(
          fmt::format("'{}' has the shape of the embedding table '{}': if the model ties them, the "
                      "exporter has "
                      "copied the weights and they are counted twice",
                      network[layer.parameters[0]].name, network[table.parameters[0]].name));
      return;
    }
  }
}

/// Warns of outputs that do not contribute to the loss.
void warn_of_other_outputs(Network& network, const Graph& graph, const Builder& builder,
                           LayerId first) {
  std::set<LayerId> seen{first};
  for (std::size_t i = network.layers.size(); i-- > 0;) {
    if (!seen.contains(LayerId{i})) continue;
    for (const LayerId input : network.layers[i].inputs) seen.insert(input);
  }
  std::vector<std::string> unseen;
  for (const std::string& name : graph.outputs) {
    const Value* value = builder.tensor(name);
    if (value != nullptr && value->is(Value::Kind::activation) && !seen.contains(value->layer)) {
      unseen.push_back(name);
    }
  }
  if (!unseen.empty()) {
    network.warnings.push_back(fmt::format("the loss is taken on output '{}' only, not on {}",
                                           graph.outputs[0], join(unseen)));
  }
}

}  // namespace

Network read_onnx(const std::string& path, const std::map<std::string, std::int64_t>& dims) {
  const Graph graph = onnx_reader::load_graph(path, dims);
  Builder builder(graph, std::filesystem::path(path).stem().string());
  for (const Node& node : graph.nodes) onnx_reader::apply(builder, node);
  const Value* out = builder.tensor(graph.outputs[0]);
  const std::string where = fmt::format("{}: output '{}'", path, graph.outputs[0]);
  if (out == nullptr)
    throw InputError(where, "no node produces it", "accepted: the output of a node");
  if (!out->is(Value::Kind::activation)) {
    throw InputError(where, "it does not depend on the inputs of the graph",
                     "accepted: an output computed from them, such as logits");
  }
  Network& network = builder.network();
  const LayerId last = out->layer;
  warn_of_other_outputs(network, graph, builder, last);
  if (network[last].kind.as<Loss>() == nullptr) add_layer(network, "loss", Loss{}, {last});
  if (norms_are_folded(network)) {
    network.warnings.push_back(
        "batch normalisation seems to be folded into the convolutions, as in an export for "
        "inference: training has other layers and parameters; export the model in training mode");
  }
  warn_of_untied(network);
  return std::move(network);
}

}  // namespace parsim::networks
