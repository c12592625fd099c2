// Which machines read the samples of a step.
#pragma once

#include <vector>

#include "core/exec_dag.hpp"

namespace parsim::lowering {

/// Of each machine with devices that compute a reader of an Input: how many samples of a step they
/// need together, each counted once. Ascending, equal ones once.
[[nodiscard]] std::vector<MachineReads> machine_reads(const Network& network,
                                                      const Cluster& cluster, const Plan& plan);

}  // namespace parsim::lowering
