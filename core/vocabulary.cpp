#include "core/vocabulary.hpp"

#include <algorithm>
#include <vector>

namespace parsim {

namespace {

/// The loss, and what leads to it by itself up to the product that makes the scores.
std::vector<LayerId> scores(const Network& network) {
  std::vector<LayerId> found;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    if (network.layers[l].kind.as<Loss>() == nullptr) continue;
    for (LayerId id{l};; id = network[id].inputs[0]) {
      found.push_back(id);
      if (network[id].kind.as<Dense>() != nullptr || network[id].inputs.size() != 1) break;
    }
  }
  return found;
}

}  // namespace

std::optional<std::int64_t> vocabulary_of(const Network& network) {
  const std::vector<LayerId> path = scores(network);
  if (path.empty()) return std::nullopt;
  const auto* dense = network[path.back()].kind.as<Dense>();
  if (dense == nullptr) return std::nullopt;
  const auto is_table = [&](const Layer& layer) {
    const auto* table = layer.kind.as<Embedding>();
    return table != nullptr && table->rows == dense->units;
  };
  if (std::none_of(network.layers.begin(), network.layers.end(), is_table)) return std::nullopt;
  return dense->units;
}

void pad_vocabulary(Network& network, std::int64_t multiple) {
  const std::optional<std::int64_t> words = vocabulary_of(network);
  if (!words || *words % multiple == 0) return;
  const std::int64_t padded = (*words + multiple - 1) / multiple * multiple;
  Dense product = *network[scores(network).back()].kind.as<Dense>();
  product.units = padded;
  network.layers[scores(network).back().index()].kind = product;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    Layer& layer = network.layers[l];
    if (const auto* table = layer.kind.as<Embedding>(); table != nullptr && table->rows == *words) {
      Embedding larger = *table;
      larger.rows = padded;
      layer.kind = larger;
    }
    if (layer.inputs.empty()) continue;
    const std::vector<Shape> shapes = input_shapes(network, LayerId{l});
    layer.out = output_shape(layer.kind, shapes, layer.name);
    const std::vector<ParameterShape> wanted = parameter_shapes(layer.kind, shapes);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      network.parameters[layer.parameters[i].index()].extents = wanted[i].extents;
    }
  }
}

}  // namespace parsim
