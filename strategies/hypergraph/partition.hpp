// The partitioner: multilevel k-way partitioning of a hypergraph for connectivity minus one, in
// the manner of PaToH (Catalyurek and Aykanat 1999) and KaHyPar (Schlag et al. 2016), written anew.
#pragma once

#include <cstdint>
#include <vector>

#include "strategies/hypergraph/hypergraph.hpp"

namespace parsim::strategies::hypergraph {

struct PartitionOptions {
  std::int32_t parts = 2;
  /// Relative target weights: one for each part, or part-major for each part and constraint;
  /// empty: all equal.
  std::vector<double> shares;
  double tolerance = 0.05;  ///< a part may weigh (1 + tolerance) of its target
  std::uint64_t seed = 1;
  std::int32_t restarts = 4;    ///< multilevel runs from scratch
  std::int32_t bisections = 2;  ///< starts by recursive bisection, if there are more than 2 parts
  std::int32_t recombinations = 4;  ///< multilevel runs that keep what two good partitions share
  std::int32_t patience = 350;      ///< moves without improvement that end an FM pass
  /// Starts from cheapest_chain over the vertices' order, and from a partition of whole layers or
  /// groups of filters (merge_alike).
  bool chains = true;
  std::vector<Parts> starts;  ///< warm starts; not balanced ones are rebalanced
};

struct Partition {
  Parts parts;
  std::int64_t cost = 0;  ///< connectivity minus one
  double overload = 0;    ///< beyond the limits; 0: balanced
  double imbalance = 0;   ///< largest weight over its target, minus one
  [[nodiscard]] bool balanced() const { return overload == 0; }
  friend bool operator==(const Partition&, const Partition&) = default;
};

/// The best partition found: balanced ones first, then the cheapest. Never more expensive than a
/// start that is balanced. The same options give the same partition.
[[nodiscard]] Partition partition(const Hypergraph& graph, const PartitionOptions& options);

/// `parts` with its cost and balance.
[[nodiscard]] Partition evaluated(const Hypergraph& graph, Parts parts,
                                  const PartitionOptions& options);

}  // namespace parsim::strategies::hypergraph
