// Graph algorithms on execution DAGs, by Boost.Graph (in the .cpp; library core_graph).
#pragma once

#include <vector>

#include "core/cost_model.hpp"
#include "core/exec_dag.hpp"

namespace parsim {

struct CriticalPath {
  Seconds length{};
  std::vector<OpId> ops;  ///< first to last
};
/// Longest chain of dependencies when operation i takes durations[i] and every resource is free.
[[nodiscard]] CriticalPath critical_path(const ExecDag& dag, const std::vector<Seconds>& durations);

}  // namespace parsim
