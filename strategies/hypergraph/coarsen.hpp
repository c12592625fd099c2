// Coarser hypergraphs: clusters of vertices that share expensive nets become single vertices.
#pragma once

#include <vector>

#include "core/random.hpp"
#include "strategies/hypergraph/balance.hpp"
#include "strategies/hypergraph/hypergraph.hpp"

namespace parsim::strategies::hypergraph {

struct Coarsening {
  Hypergraph graph;
  std::vector<Vertex> cluster;  ///< by vertex of the finer graph
};

/// How far and how eagerly.
struct CoarseningRules {
  std::int32_t vertices = 100;  ///< not fewer than this
  double cap = 1.5;             ///< heaviest cluster, in average vertices of the coarsest graph
  bool light_first = true;      ///< prefers light clusters among equally connected ones
};

/// One level: every vertex, in random order, joins the cluster with the largest Σ cost / |readers|
/// of shared nets, if it is not too heavy. Only vertices with equal `labels` meet (empty: all may),
/// and never two that are fixed to different parts. Costs of partitions that respect the clusters
/// are equal on both graphs.
[[nodiscard]] Coarsening coarsen(const Hypergraph& graph, const Limits& limits,
                                 const CoarseningRules& rules,
                                 const std::vector<std::int32_t>& labels, Random& random);

/// Vertices that read the same sets and are sources of the same ones become one: the filters of a
/// layer, or of one of its groups. Vertices that are fixed to different parts stay apart.
[[nodiscard]] Coarsening merge_alike(const Hypergraph& graph);

}  // namespace parsim::strategies::hypergraph
