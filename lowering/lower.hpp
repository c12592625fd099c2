// From any plan to its execution DAG: one function for all strategies, so that resharding, gradient
// synchronisation and pipelining exist once.
#pragma once

#include <vector>

#include "core/exec_dag.hpp"
#include "core/plan.hpp"
#include "lowering/memory.hpp"

namespace parsim::lowering {

/// The DAG of one training step: forward, backward, gradient synchronisation, update.
/// Throws InputError if the plan is not valid for network and cluster.
[[nodiscard]] ExecDag lower(const Network& network, const Cluster& cluster, const Plan& plan);

/// The same with the memory that the plan needs on each device (lowering/memory.hpp): where both
/// are asked for, movements are found once.
struct Lowered {
  ExecDag dag;
  std::vector<MemoryUse> memory;  ///< by DeviceId
};
[[nodiscard]] Lowered lower_with_memory(const Network& network, const Cluster& cluster,
                                        const Plan& plan);

}  // namespace parsim::lowering
