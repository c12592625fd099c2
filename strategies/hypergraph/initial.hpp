// First partitions, to be refined.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/random.hpp"
#include "strategies/hypergraph/balance.hpp"
#include "strategies/hypergraph/hypergraph.hpp"

namespace parsim::strategies::hypergraph {

/// The cheapest partition whose parts are ranges of `units` (groups of vertices, in order), part
/// `order[0]` first; nothing if none keeps the limits. Exact by dynamic programming, because the
/// cost of a partition is a sum over parts (see Hypergraph). Fixed vertices are not looked at.
[[nodiscard]] std::optional<Parts> cheapest_chain(const Hypergraph& graph, const Limits& limits,
                                                  const std::vector<std::vector<Vertex>>& units,
                                                  const std::vector<std::int32_t>& order);

/// Every vertex a unit of its own.
[[nodiscard]] std::vector<std::vector<Vertex>> single_units(const Hypergraph& graph);

/// Vertices in random order, each to the part with the most capacity left.
[[nodiscard]] Parts random_parts(const Hypergraph& graph, const Limits& limits, Random& random);

/// Part after part grows from a random vertex by what attaches most to it, until it is full.
[[nodiscard]] Parts grown_parts(const Hypergraph& graph, const Limits& limits, Random& random);

}  // namespace parsim::strategies::hypergraph
