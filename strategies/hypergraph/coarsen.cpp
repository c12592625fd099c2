#include "strategies/hypergraph/coarsen.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace parsim::strategies::hypergraph {

namespace {

/// Clusters while they grow; a cluster is named after its first vertex.
class Clusters {
 public:
  Clusters(const Hypergraph& graph, const Limits& limits, const CoarseningRules& rules,
           const std::vector<std::int32_t>& labels)
      : graph_(graph),
        rules_(rules),
        labels_(labels),
        cluster_(at(graph.vertices)),
        weights_(graph.weights),
        fixed_(at(graph.vertices)),
        alone_(at(graph.vertices), true),
        rating_(at(graph.vertices), 0.0) {
    for (Vertex v = 0; v < graph.vertices; ++v) {
      cluster_[at(v)] = v;
      fixed_[at(v)] = graph.fixed_part(v);
    }
    for (const double total : limits.totals) {
      // A cluster of half a part or more could not be balanced.
      caps_.push_back(std::min(rules.cap * total / rules.vertices, total / (2.0 * limits.parts)));
    }
  }

  /// Lets `v` join a neighbour; true if it did.
  bool join(Vertex v, Random& random) {
    if (!alone_[at(v)]) return false;
    rate(v);
    Vertex best = -1;
    double most = 0;
    std::uint64_t tie = 0;
    for (const Vertex c : neighbours_) {
      const double rating = rating_[at(c)] / penalty(c);
      rating_[at(c)] = 0;
      if (c == v || rating < most || !may_meet(v, c)) continue;
      const std::uint64_t draw = random.next();
      if (rating == most && best >= 0 && draw <= tie) continue;
      most = rating;
      best = c;
      tie = draw;
    }
    neighbours_.clear();
    if (best < 0) return false;
    cluster_[at(v)] = best;
    alone_[at(v)] = alone_[at(best)] = false;
    fixed_[at(best)] = std::max(fixed_[at(best)], fixed_[at(v)]);
    for (std::size_t c = 0; c < caps_.size(); ++c)
      weights_[at(best) * caps_.size() + c] += weights_[at(v) * caps_.size() + c];
    return true;
  }
  [[nodiscard]] const std::vector<Vertex>& of_vertices() const { return cluster_; }

 private:
  void rate(Vertex v) {
    const auto add = [&](Vertex u, double value) {
      const Vertex c = cluster_[at(u)];
      if (rating_[at(c)] == 0) neighbours_.push_back(c);
      rating_[at(c)] += value;
    };
    for (const Incidence& role : graph_.roles[at(v)]) {
      const std::vector<Vertex>& readers = graph_.readers[at(role.set)];
      const auto size = static_cast<double>(readers.size());
      double shared = static_cast<double>(role.cost);
      if (role.reader) {
        for (const Source& source : graph_.sources[at(role.set)]) {
          shared += static_cast<double>(source.cost);
          add(source.vertex, static_cast<double>(source.cost) / size);
        }
      }
      for (const Vertex u : readers) add(u, shared / size);
    }
  }
  [[nodiscard]] double penalty(Vertex c) const {
    if (!rules_.light_first) return 1;
    double heavy = 0;
    for (std::size_t k = 0; k < caps_.size(); ++k) {
      heavy = std::max(
          heavy, static_cast<double>(weights_[at(c) * caps_.size() + k]) / std::max(1.0, caps_[k]));
    }
    return 0.05 + heavy;
  }
  [[nodiscard]] bool may_meet(Vertex v, Vertex c) const {
    if (!labels_.empty() && labels_[at(v)] != labels_[at(c)]) return false;
    if (fixed_[at(v)] >= 0 && fixed_[at(c)] >= 0 && fixed_[at(v)] != fixed_[at(c)]) return false;
    for (std::size_t k = 0; k < caps_.size(); ++k) {
      const std::int64_t w = weights_[at(v) * caps_.size() + k];
      if (w > 0 && static_cast<double>(weights_[at(c) * caps_.size() + k] + w) > caps_[k])
        return false;
    }
    return true;
  }

  const Hypergraph& graph_;
  const CoarseningRules& rules_;
  const std::vector<std::int32_t>& labels_;
  std::vector<Vertex> cluster_;
  std::vector<std::int64_t> weights_;
  std::vector<std::int32_t> fixed_;
  std::vector<bool> alone_;
  std::vector<double> rating_, caps_;
  std::vector<Vertex> neighbours_;
};

/// The graph of the clusters. Sets whose readers become the same are joined; sources that are the
/// only reader are dropped.
Hypergraph contract(const Hypergraph& graph, const std::vector<Vertex>& cluster,
                    std::int32_t count) {
  Builder builder(graph.constraints);
  const auto nc = at(graph.constraints);
  std::vector<std::int64_t> weights(at(count) * nc, 0);
  std::vector<std::int32_t> fixed(at(count), -1);
  for (Vertex v = 0; v < graph.vertices; ++v) {
    const Vertex c = cluster[at(v)];
    fixed[at(c)] = std::max(fixed[at(c)], graph.fixed_part(v));
    for (std::size_t k = 0; k < nc; ++k) weights[at(c) * nc + k] += graph.weights[at(v) * nc + k];
  }
  for (std::int32_t c = 0; c < count; ++c)
    builder.add_vertex(std::span(weights).subspan(at(c) * nc, nc), fixed[at(c)]);
  for (std::size_t set = 0; set < graph.readers.size(); ++set) {
    std::vector<Vertex> readers;
    for (const Vertex v : graph.readers[set]) readers.push_back(cluster[at(v)]);
    std::vector<Source> sources;
    for (const Source& source : graph.sources[set])
      sources.push_back({cluster[at(source.vertex)], source.cost});
    builder.add_nets(sources, std::move(readers));
  }
  return builder.build();
}

}  // namespace

Coarsening coarsen(const Hypergraph& graph, const Limits& limits, const CoarseningRules& rules,
                   const std::vector<std::int32_t>& labels, Random& random) {
  Clusters clusters(graph, limits, rules, labels);
  std::vector<Vertex> order;
  for (Vertex v = 0; v < graph.vertices; ++v) order.push_back(v);
  random.shuffle(order);
  std::int32_t left = graph.vertices;
  for (const Vertex v : order) {
    if (left <= rules.vertices) break;
    if (clusters.join(v, random)) --left;
  }
  Coarsening result;
  result.cluster = clusters.of_vertices();
  // Renumber by first vertex, so that clusters keep the order of the layers.
  std::vector<Vertex> number(at(graph.vertices), -1);
  std::int32_t count = 0;
  for (Vertex v = 0; v < graph.vertices; ++v) {
    Vertex& id = number[at(result.cluster[at(v)])];
    if (id < 0) id = count++;
    result.cluster[at(v)] = id;
  }
  result.graph = contract(graph, result.cluster, count);
  return result;
}

Coarsening merge_alike(const Hypergraph& graph) {
  Coarsening result;
  std::map<std::pair<std::int32_t, std::vector<std::pair<std::int32_t, int>>>, Vertex> known;
  for (Vertex v = 0; v < graph.vertices; ++v) {
    std::vector<std::pair<std::int32_t, int>> roles;
    for (const Incidence& role : graph.roles[at(v)])
      roles.emplace_back(role.set, (role.reader ? 1 : 0) + (role.cost > 0 ? 2 : 0));
    const auto next = static_cast<Vertex>(known.size());
    const auto [at_key, is_new] = known.try_emplace({graph.fixed_part(v), std::move(roles)}, next);
    result.cluster.push_back(at_key->second);
  }
  result.graph = contract(graph, result.cluster, static_cast<std::int32_t>(known.size()));
  return result;
}

}  // namespace parsim::strategies::hypergraph
