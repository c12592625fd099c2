// What a transfer or collective of a prepared DAG puts on the links: which flows, how many bytes,
// after how long.
#pragma once

#include <vector>

#include "sim/dag_run.hpp"

namespace parsim {

/// The flows of an operation, for hops and macro. Adds the bytes that links carry, and are spared,
/// to the findings; those of merged operations have been counted.
void flows_of(const ExecDag& dag, const PreparedDag& prepared, OpId op, Fidelity fidelity,
              const Findings& findings, OpFlows& result);

/// How many flows the operations that run have together, at fidelity hops: the pairs of an
/// all-to-all count though some may be empty.
[[nodiscard]] std::size_t flow_count(const ExecDag& dag, const PreparedDag& prepared);

/// How long these flows take alone.
[[nodiscard]] Seconds time_alone(const OpFlows& flows, const PreparedDag& prepared,
                                 const Cluster& cluster);
/// How long the operation takes alone; adds to the findings, too. Not of a DAG prepared for macro.
[[nodiscard]] Seconds time_alone(const ExecDag& dag, const PreparedDag& prepared, OpId op,
                                 const Cluster& cluster, const Findings& findings);

/// What a collective carries, in bytes.
[[nodiscard]] CollectivePayload payload_of(const ExecDag& dag, OpId op);

}  // namespace parsim
