#include "strategies/hypergraph/hypergraph.hpp"

#include <algorithm>

#include "core/errors.hpp"

namespace parsim::strategies::hypergraph {

std::vector<std::int64_t> Hypergraph::total_weights() const {
  std::vector<std::int64_t> totals(at(constraints), 0);
  for (std::size_t i = 0; i < weights.size(); ++i) totals[i % totals.size()] += weights[i];
  return totals;
}

Vertex Builder::add_vertex(std::span<const std::int64_t> weights, std::int32_t fixed) {
  ensure(weights.size() == at(graph_.constraints), "a vertex has a weight for each constraint");
  graph_.weights.insert(graph_.weights.end(), weights.begin(), weights.end());
  graph_.fixed.push_back(fixed);
  return graph_.vertices++;
}

void Builder::add_net(Vertex source, std::vector<Vertex> readers, std::int64_t cost) {
  const Source one{source, cost};
  add_nets(std::span(&one, 1), std::move(readers));
}

void Builder::add_nets(std::span<const Source> sources, std::vector<Vertex> readers) {
  std::sort(readers.begin(), readers.end());
  readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
  if (readers.empty()) return;
  const Vertex alone = readers.size() == 1 ? readers[0] : -1;
  std::map<Vertex, std::int64_t>* costs = nullptr;
  for (const Source& source : sources) {
    if (source.cost == 0 || source.vertex == alone) continue;
    if (costs == nullptr) costs = &sets_[std::move(readers)];
    (*costs)[source.vertex] += source.cost;
  }
}

Hypergraph Builder::build() {
  const bool free = std::all_of(graph_.fixed.begin(), graph_.fixed.end(),
                                [](std::int32_t part) { return part < 0; });
  if (free) graph_.fixed.clear();
  graph_.roles.resize(at(graph_.vertices));
  for (auto& [readers, sources] : sets_) {
    const auto set = static_cast<std::int32_t>(graph_.readers.size());
    for (const Vertex v : readers) graph_.roles[at(v)].push_back({set, true, 0});
    std::vector<Source>& list = graph_.sources.emplace_back();
    for (const auto& [v, cost] : sources) {
      list.push_back({v, cost});
      std::vector<Incidence>& roles = graph_.roles[at(v)];
      if (!roles.empty() && roles.back().set == set) {
        roles.back().cost = cost;
      } else {
        roles.push_back({set, false, cost});
      }
    }
    graph_.readers.push_back(readers);
  }
  sets_.clear();
  return std::move(graph_);
}

std::int64_t connectivity_cost(const Hypergraph& graph, const Parts& parts) {
  std::int64_t cost = 0;
  std::vector<std::int32_t> reading;
  for (std::size_t set = 0; set < graph.readers.size(); ++set) {
    reading.clear();
    for (const Vertex v : graph.readers[set]) reading.push_back(parts[at(v)]);
    std::sort(reading.begin(), reading.end());
    reading.erase(std::unique(reading.begin(), reading.end()), reading.end());
    for (const Source& source : graph.sources[set]) {
      const bool reads_own =
          std::binary_search(reading.begin(), reading.end(), parts[at(source.vertex)]);
      cost += source.cost * (static_cast<std::int64_t>(reading.size()) - (reads_own ? 1 : 0));
    }
  }
  return cost;
}

std::vector<std::int64_t> part_weights(const Hypergraph& graph, const Parts& parts,
                                       std::int32_t count) {
  std::vector<std::int64_t> weights(at(count) * at(graph.constraints), 0);
  for (Vertex v = 0; v < graph.vertices; ++v) {
    for (std::int32_t c = 0; c < graph.constraints; ++c)
      weights[at(parts[at(v)]) * at(graph.constraints) + at(c)] += graph.weight(v, c);
  }
  return weights;
}

}  // namespace parsim::strategies::hypergraph
