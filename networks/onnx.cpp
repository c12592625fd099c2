// read_onnx: from a file to a Network.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "core/errors.hpp"
#include "core/text.hpp"
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

/// True if BatchNorm was folded into the convolutions, as exporters do for inference. The network
/// then has no normalisation of any kind, and of its convolutions weights and biases have names
/// that the exporter made up, because neither are the model's ("onnx::Conv_497"). Biases alone say
/// nothing: residual networks without normalisation have them, and scaled weights have made-up
/// names.
bool norms_are_folded(const Network& network) {
  const auto made_up = [&](ParameterId id) { return network[id].name.starts_with("onnx::Conv_"); };
  return std::none_of(network.layers.begin(), network.layers.end(), normalises) &&
         std::any_of(network.layers.begin(), network.layers.end(), [&](const Layer& layer) {
           const Conv* conv = layer.kind.as<Conv>();
           return conv != nullptr && conv->bias &&
                  std::all_of(layer.parameters.begin(), layer.parameters.end(), made_up);
         });
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

/// Whether an exporter made the name up because no parameter of the model has these numbers: older
/// exporters count ("260"), newer ones also say what reads it ("onnx::Add_260").
bool is_made_up(std::string_view name) {
  if (name.starts_with("onnx::")) return true;
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// Warns of learned tables that are no parameter of the model: rows of positions that the exporter
/// looked up, relative positions that it expanded. Transposed weights of products also have made-up
/// names, but as many numbers as the model's.
void warn_of_computed_tables(Network& network) {
  std::vector<std::string> tables;
  for (const Layer& layer : network.layers) {
    if (layer.kind.as<Learned>() == nullptr) continue;
    const Parameter& parameter = network[layer.parameters[0]];
    if (!is_made_up(parameter.name)) continue;
    tables.push_back(fmt::format("'{}' [{}]", parameter.name, fmt::join(parameter.extents, " x ")));
  }
  if (tables.empty()) return;
  constexpr std::size_t most_named = 3;
  const std::size_t count = tables.size();
  if (count > most_named) tables.resize(most_named);
  network.warnings.push_back(fmt::format(
      "{} learned table{} computed by the exporter: {}{}: the model may train another number of "
      "rows",
      count, count == 1 ? " was" : "s were", join(tables), count > most_named ? ", ..." : ""));
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

/// For each node whether an output of the graph needs it; nodes come in the order of their inputs.
std::vector<bool> needed(const Graph& graph) {
  std::set<std::string> names(graph.outputs.begin(), graph.outputs.end());
  std::vector<bool> needed(graph.nodes.size());
  for (std::size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    needed[n] = std::any_of(node.outputs.begin(), node.outputs.end(),
                            [&](const std::string& name) { return names.contains(name); });
    if (needed[n]) names.insert(node.inputs.begin(), node.inputs.end());
  }
  return needed;
}

}  // namespace

Network read_onnx(const std::string& path, const std::map<std::string, std::int64_t>& dims) {
  const Graph graph = onnx_reader::load_graph(path, dims);
  Builder builder(graph, std::filesystem::path(path).stem().string());
  const std::vector<bool> reads = needed(graph);
  std::vector<std::string> unread;
  for (std::size_t n = 0; n < graph.nodes.size(); ++n) {
    if (reads[n]) {
      onnx_reader::apply(builder, graph.nodes[n]);
    } else {
      unread.push_back(graph.nodes[n].name);
    }
  }
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
  if (!unread.empty()) {
    network.warnings.push_back(fmt::format("{} that no output needs {} left out, '{}' first",
                                           counted(std::ssize(unread), "node"),
                                           unread.size() == 1 ? "is" : "are", unread[0]));
  }
  warn_of_other_outputs(network, graph, builder, last);
  if (network[last].kind.as<Loss>() == nullptr) add_layer(network, "loss", Loss{}, {last});
  if (norms_are_folded(network)) {
    network.warnings.push_back(
        "batch normalisation is folded into the convolutions, as in an export for inference: "
        "training "
        "has other layers and parameters; export the model in training mode");
  }
  warn_of_untied(network);
  warn_of_computed_tables(network);
  return std::move(network);
}

}  // namespace parsim::networks
