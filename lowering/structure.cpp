#include "lowering/structure.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

namespace parsim::lowering {

namespace {

/// By layer the first that is like it: of the same kind, with the same shapes and gradients, as are
/// all layers within so many edges of both. Prices look no further.
std::vector<LayerId> alike(const Network& network, const GradientFlow& flow,
                           const std::vector<std::vector<Shape>>& inputs,
                           const std::vector<std::vector<Consumer>>& readers) {
  constexpr int edges = 8;
  const std::size_t count = network.layers.size();
  const auto same = [&](std::size_t a, std::size_t b) {
    const Layer &x = network.layers[a], &y = network.layers[b];
    const auto same_extents = [&](ParameterId p, ParameterId q) {
      return network[p].extents == network[q].extents;
    };
    return x.kind == y.kind && x.out == y.out && inputs[a] == inputs[b] &&
           std::equal(x.parameters.begin(), x.parameters.end(), y.parameters.begin(),
                      y.parameters.end(), same_extents) &&
           flow.source[a] == flow.source[b] && flow.reaches_loss[a] == flow.reaches_loss[b] &&
           flow.wants[a] == flow.wants[b] && flow.passes_on[a] == flow.passes_on[b];
  };
  std::vector<std::size_t> first(count);  // by layer
  std::map<std::int64_t, std::vector<std::size_t>> by_size;
  for (std::size_t l = 0; l < count; ++l) {
    std::vector<std::size_t>& known = by_size[network.layers[l].out.elements()];
    const auto found =
        std::find_if(known.begin(), known.end(), [&](std::size_t k) { return same(k, l); });
    first[l] = found == known.end() ? l : *found;
    if (found == known.end()) known.push_back(l);
  }
  for (int step = 0; step < edges; ++step) {
    std::map<std::vector<std::size_t>, std::size_t> known;  // by layer and its neighbours
    std::vector<std::size_t> next(count);
    for (std::size_t l = 0; l < count; ++l) {
      std::vector<std::size_t> around{first[l]};
      for (const LayerId from : network.layers[l].inputs) around.push_back(first[from.index()]);
      for (const Consumer& reader : readers[l]) {
        around.push_back(first[reader.layer.index()]);
        around.push_back(static_cast<std::size_t>(reader.input));
      }
      next[l] = known.try_emplace(std::move(around), l).first->second;
    }
    if (next == first) break;
    first = std::move(next);
  }
  return {first.begin(), first.end()};
}

std::vector<std::vector<Shape>> shapes_of_inputs(const Network& network) {
  std::vector<std::vector<Shape>> inputs;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    inputs.push_back(input_shapes(network, LayerId{l}));
  }
  return inputs;
}

}  // namespace

Structure::Structure(const Network& network)
    : flow(gradient_flow(network)),
      inputs(shapes_of_inputs(network)),
      readers(consumers(network)),
      reader_index(network.layers.size()),
      users(users_of_parameters(network)),
      like(alike(network, flow, inputs, readers)) {
  std::size_t edges = 0;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    reader_index[l].resize(network.layers[l].inputs.size());
    first_edge.push_back(edges);
    edges += reader_index[l].size();
  }
  first_edge.push_back(edges);
  for (const std::vector<Consumer>& list : readers) {
    for (std::size_t r = 0; r < list.size(); ++r) {
      reader_index[list[r].layer.index()][list[r].input] = static_cast<std::int32_t>(r);
    }
  }
}

}  // namespace parsim::lowering
