#include "strategies/layer_wise/tables.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

namespace parsim::strategies::layer_wise {

namespace {

/// Layers that change single numbers, which the paper counts as part of the layer before.
bool follows(const LayerKind& kind) {
  return kind.as<Activation>() != nullptr || kind.as<Dropout>() != nullptr ||
         kind.as<Norm>() != nullptr;
}

/// Numbers from equal to equal: layers with the same kind, shapes and wish for gradients cost the
/// same. Ids are those of the first such layer.
class Alike {
 public:
  Alike(const Network& network, const std::vector<bool>& wanted) {
    for (std::size_t l = 0; l < network.layers.size(); ++l) {
      const Layer& layer = network.layers[l];
      std::vector<Shape> inputs = input_shapes(network, LayerId{l});
      const bool data = wants_data(network, LayerId{l}, wanted);
      std::size_t same = 0;
      while (same < seen_.size() &&
             !(seen_[same].data == data && *seen_[same].kind == layer.kind &&
               seen_[same].inputs == inputs && *seen_[same].out == layer.out))
        ++same;
      if (same == seen_.size()) seen_.push_back({data, &layer.kind, std::move(inputs), &layer.out});
      of_.push_back(same);
    }
  }
  [[nodiscard]] std::size_t of(LayerId layer) const { return of_[layer.index()]; }

 private:
  struct Seen {
    bool data;
    const LayerKind* kind;
    std::vector<Shape> inputs;
    const Shape* out;
  };
  std::vector<Seen> seen_;
  std::vector<std::size_t> of_;
};

/// What the search may cost: table entries joined in eliminations, boxes intersected for t_X.
constexpr double most_joins = 2.5e9, most_boxes = 2e9;

/// Configurations a node may keep so that the whole search stays within bounds.
std::size_t most_configurations(std::size_t edges, std::size_t devices) {
  const double e = std::max<double>(1, static_cast<double>(edges));
  const double joins = std::cbrt(most_joins / e);
  const double intersections = std::sqrt(most_boxes / (e * static_cast<double>(devices)));
  return static_cast<std::size_t>(std::max(8.0, std::min(joins, intersections)));
}

/// Leaves only the configurations `chosen`, ascending.
void keep(Node& node, NodeCosts& costs, const std::vector<std::size_t>& chosen) {
  const auto thin = [&](auto& values) {
    std::decay_t<decltype(values)> left;
    for (const std::size_t c : chosen) left.push_back(values[c]);
    values = std::move(left);
  };
  thin(node.configurations);
  for (auto* values : {&costs.compute, &costs.sync, &costs.update, &costs.memory}) thin(*values);
}

/// The `most` cheapest configurations, ties to the lower.
std::vector<std::size_t> cheapest(const NodeCosts& costs, std::size_t most) {
  std::vector<std::size_t> order(costs.compute.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  // The first configuration is the split by sample over as many devices as possible.
  const auto price = [&](std::size_t c) {
    return c == 0 ? -1 : costs.compute[c] + costs.update[c] + costs.sync[c];
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return price(a) < price(b); });
  order.resize(std::min(most, order.size()));
  std::sort(order.begin(), order.end());
  return order;
}

/// By node: configurations that may be part of the least sum for one of the weights.
/// by_sample   t_X of all edges if every node has its first configuration
std::vector<std::vector<std::size_t>> promising(const std::vector<NodeCosts>& costs,
                                                double by_sample,
                                                std::span<const double> sync_weights) {
  std::vector<std::vector<bool>> stays;
  for (const NodeCosts& node : costs) stays.emplace_back(node.compute.size(), false);
  for (const double weight : sync_weights) {
    const auto cost = [&](std::size_t n, std::size_t c) {
      return costs[n].compute[c] + costs[n].update[c] + weight * costs[n].sync[c];
    };
    std::vector<double> least;
    double reachable = by_sample, bound = 0;
    for (std::size_t n = 0; n < costs.size(); ++n) {
      double best = cost(n, 0);
      for (std::size_t c = 1; c < costs[n].compute.size(); ++c) best = std::min(best, cost(n, c));
      least.push_back(best);
      reachable += cost(n, 0);
      bound += best;
    }
    const double gap = (reachable - bound) * (1 + 1e-9);
    for (std::size_t n = 0; n < costs.size(); ++n) {
      for (std::size_t c = 0; c < stays[n].size(); ++c) {
        if (cost(n, c) - least[n] <= gap) stays[n][c] = true;
      }
    }
  }
  std::vector<std::vector<std::size_t>> result;
  for (const std::vector<bool>& node : stays) {
    std::vector<std::size_t>& chosen = result.emplace_back();
    for (std::size_t c = 0; c < node.size(); ++c) {
      if (node[c]) chosen.push_back(c);
    }
  }
  return result;
}

/// Numbers of the nodes, edges between them, and which nodes and edges are alike.
struct NodeGraph {
  struct Edge {
    std::size_t from = 0, to = 0;
    Consumer operand;
    std::size_t kind = 0;  ///< edges of one kind have one table
  };
  std::vector<std::size_t> kind;  ///< by node: the first node that is like it
  std::vector<Edge> edges;
  std::size_t edge_kinds = 0;
};

NodeGraph graph_of(const Network& network, const std::vector<Node>& nodes,
                   const std::vector<bool>& wanted) {
  const Alike alike(network, wanted);
  NodeGraph graph;
  std::vector<std::size_t> node_of(network.layers.size(), nodes.size());
  std::map<std::vector<std::size_t>, std::size_t> kinds;
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    std::vector<std::size_t> key;
    for (const LayerId layer : nodes[n].layers) {
      node_of[layer.index()] = n;
      key.push_back(alike.of(layer));
    }
    graph.kind.push_back(kinds.try_emplace(key, n).first->second);
  }
  using Key = std::tuple<std::size_t, std::size_t, std::size_t, std::size_t>;
  std::map<Key, std::size_t> known;
  for (std::size_t n = 0; n < nodes.size(); ++n) {
    for (const LayerId layer : nodes[n].layers) {
      const std::vector<LayerId>& inputs = network[layer].inputs;
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        const std::size_t from = node_of[inputs[i].index()];
        if (from == nodes.size()) continue;  // training data: every device has it
        const Key key{graph.kind[from], graph.kind[n], alike.of(layer), i};
        const std::size_t kind = known.try_emplace(key, known.size()).first->second;
        graph.edges.push_back({from, n, {layer, i}, kind});
      }
    }
  }
  graph.edge_kinds = known.size();
  return graph;
}

/// By kind of edge.
std::vector<std::shared_ptr<const Matrix>> transfer_tables(const StrategyInput& input,
                                                           const ClusterModel& model,
                                                           TransferRule rule,
                                                           const NodeGraph& graph,
                                                           const std::vector<Node>& nodes) {
  std::vector<std::shared_ptr<const Matrix>> result(graph.edge_kinds);
  for (const NodeGraph::Edge& edge : graph.edges) {
    if (result[edge.kind] != nullptr) continue;
    result[edge.kind] = std::make_shared<Matrix>(
        transfer_table(input, model, rule, edge.operand, nodes[edge.from], nodes[edge.to]));
  }
  return result;
}

/// t_X of all edges if every node has its first configuration.
double transfers_by_sample(const StrategyInput& input, const ClusterModel& model, TransferRule rule,
                           const NodeGraph& graph, std::vector<Node> nodes) {
  for (Node& node : nodes) node.configurations.resize(1);
  const auto tables = transfer_tables(input, model, rule, graph, nodes);
  double sum = 0;
  for (const NodeGraph::Edge& edge : graph.edges) sum += (*tables[edge.kind])(0, 0);
  return sum;
}

}  // namespace

std::vector<Node> nodes_of(const Network& network, std::int64_t batch, std::size_t devices,
                           DegreeRule rule) {
  std::vector<Node> nodes;
  std::vector<std::size_t> node_of(network.layers.size(), network.layers.size());
  std::vector<Degrees> most;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const LayerId id{l};
    const Layer& layer = network[id];
    if (layer.kind.as<Input>() != nullptr) continue;
    const Degrees own = most_parts(network, id, batch);
    const std::size_t before =
        layer.inputs.size() == 1 ? node_of[layer.inputs[0].index()] : network.layers.size();
    // It may not stand in the way of a cut of the layer it follows.
    const bool joins = before < nodes.size() && follows(layer.kind) &&
                       layer.out == network[nodes[before].layers[0]].out &&
                       std::equal(own.begin(), own.end(), most[before].begin(),
                                  [](std::int64_t a, std::int64_t b) { return a >= b; });
    node_of[l] = joins ? before : nodes.size();
    if (joins) {
      nodes[before].layers.push_back(id);
    } else {
      nodes.push_back({{id}, configurations(own, static_cast<std::int64_t>(devices), rule)});
      most.push_back(own);
    }
  }
  return nodes;
}

Problem Tables::problem(double sync_weight, double memory_weight) const {
  Problem problem;
  problem.edges = edges;
  for (const NodeCosts& node : costs) {
    std::vector<double>& sums = problem.costs.emplace_back(node.compute);
    for (std::size_t c = 0; c < sums.size(); ++c) {
      sums[c] += node.update[c] + sync_weight * node.sync[c] + memory_weight * node.memory[c];
    }
  }
  return problem;
}

Tables make_tables(const StrategyInput& input, ClusterModel& model, TransferRule rule,
                   std::span<const double> sync_weights) {
  const std::vector<bool> wanted = wanted_gradients(input.network);
  Tables tables;
  tables.nodes = nodes_of(input.network, input.batch, model.devices().size(), input.degrees);
  if (model.exchanges() == Exchanges::collectives) {
    for (Node& node : tables.nodes) {
      std::erase_if(node.configurations, [](const Configuration& configuration) {
        const Degrees& degrees = configuration.degrees;
        return std::count(degrees.begin(), degrees.end(), 1) + 1 < std::ssize(degrees);
      });
    }
  }
  const NodeGraph graph = graph_of(input.network, tables.nodes, wanted);
  for (std::size_t n = 0; n < tables.nodes.size(); ++n) {
    tables.costs.push_back(graph.kind[n] == n ? node_costs(input, model, tables.nodes[n], wanted)
                                              : tables.costs[graph.kind[n]]);
  }
  if (!sync_weights.empty()) {
    const double by_sample = transfers_by_sample(input, model, rule, graph, tables.nodes);
    const auto stay = promising(tables.costs, by_sample, sync_weights);
    for (std::size_t n = 0; n < stay.size(); ++n) keep(tables.nodes[n], tables.costs[n], stay[n]);
  }
  const std::size_t most = most_configurations(graph.edges.size(), model.devices().size());
  for (std::size_t n = 0; n < tables.nodes.size(); ++n) {
    if (tables.nodes[n].configurations.size() <= most) continue;
    keep(tables.nodes[n], tables.costs[n], cheapest(tables.costs[n], most));
    tables.pruned = true;
  }
  const auto transfers = transfer_tables(input, model, rule, graph, tables.nodes);
  for (const NodeGraph::Edge& edge : graph.edges) {
    if (edge.from != edge.to) {
      tables.edges.push_back({edge.from, edge.to, transfers[edge.kind]});
      continue;
    }
    // Within a node: a border of neighbouring channels, if anything.
    for (std::size_t c = 0; c < tables.costs[edge.to].compute.size(); ++c) {
      tables.costs[edge.to].compute[c] += (*transfers[edge.kind])(c, c);
    }
  }
  return tables;
}

}  // namespace parsim::strategies::layer_wise
