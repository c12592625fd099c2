// How much each part may weigh: targets for every part and constraint, with a tolerance.
#pragma once

#include <cstdint>
#include <vector>

#include "strategies/hypergraph/hypergraph.hpp"

namespace parsim::strategies::hypergraph {

/// Upper limits of the parts' weights.
struct Limits {
  std::int32_t parts = 1, constraints = 1;
  std::vector<std::int64_t> caps;  ///< part-major: parts x constraints
  std::vector<double> totals;      ///< of the graph, by constraint, at least 1

  [[nodiscard]] std::size_t index(std::int32_t part, std::int32_t constraint) const {
    return static_cast<std::size_t>(part) * static_cast<std::size_t>(constraints) +
           static_cast<std::size_t>(constraint);
  }
};

/// caps = ⌊(1 + tolerance) · share · total⌋. `shares` is part-major, parts x constraints (or one
/// number a part, for all constraints), relative; empty: all equal.
[[nodiscard]] Limits limits_of(const Hypergraph& graph, std::int32_t parts,
                               const std::vector<double>& shares, double tolerance);

/// What the weights exceed their caps by, as a fraction of the totals, over all parts and
/// constraints; 0 if they keep them.
[[nodiscard]] double overload(const Limits& limits, const std::vector<std::int64_t>& weights);

/// Largest weight relative to its target, minus one, over parts and constraints.
[[nodiscard]] double imbalance(const Hypergraph& graph, const Parts& parts, std::int32_t count,
                               const std::vector<double>& shares);

}  // namespace parsim::strategies::hypergraph
