// Algorithms on plain graphs, by Boost.Graph (in the .cpp; library core_graph).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

namespace parsim {

/// Carries up to `capacity` from a to b and as much from b to a, at once.
struct FlowLink {
  std::size_t a = 0, b = 0;
  double capacity = 0;
};
/// The most that can flow from `source` to `sink`, which are two of `vertices`.
[[nodiscard]] double maximum_flow(std::size_t vertices, std::span<const FlowLink> links,
                                  std::size_t source, std::size_t sink);

struct TopologicalOrder {
  std::vector<std::size_t> order;       ///< of all vertices, unless there is a cycle
  std::optional<std::size_t> on_cycle;  ///< a vertex that waits for itself
};
/// Every vertex v after all of waits_for[v]. What is in order by number stays so.
[[nodiscard]] TopologicalOrder topological_order(
    const std::vector<std::vector<std::size_t>>& waits_for);

}  // namespace parsim
