// Graph algorithms on execution DAGs, by Boost.Graph (in the .cpp; library core_graph).
#pragma once

#include <vector>

#include "core/cost_model.hpp"
#include "core/exec_dag.hpp"

namespace parsim {

/// The operations in a topological order; smaller ids first where there is a choice.
[[nodiscard]] std::vector<OpId> topological_order(const ExecDag& dag);

struct CriticalPath {
  Seconds length{};
  std::vector<OpId> ops;  ///< first to last
};
/// Longest chain of dependencies when operation i takes durations[i] and every resource is free.
[[nodiscard]] CriticalPath critical_path(const ExecDag& dag, const std::vector<Seconds>& durations);

/// reachable[i] is true if operation i must wait, directly or not, for `from` (or is it).
[[nodiscard]] std::vector<bool> reachable_from(const ExecDag& dag, OpId from);

}  // namespace parsim
