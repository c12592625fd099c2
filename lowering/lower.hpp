// From any plan to its execution DAG: one function for all strategies, so that resharding, gradient
// synchronisation and pipelining exist once.
#pragma once

#include "core/exec_dag.hpp"
#include "core/plan.hpp"

namespace parsim::lowering {

/// The DAG of one training step: forward, backward, gradient synchronisation, update.
/// Throws InputError if the plan is not valid for network and cluster.
[[nodiscard]] ExecDag lower(const Network& network, const Cluster& cluster, const Plan& plan);

}  // namespace parsim::lowering
