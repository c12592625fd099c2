// The flows of a transfer or collective of a prepared DAG: their routes, bytes and delays.
#pragma once

#include <span>
#include <vector>

#include "sim/dag_run.hpp"

namespace parsim::sim {

/// The flows of an operation, for hops and macro. Of a DAG with folded ranks a transfer has those
/// of all ranks. Adds to `output` the bytes that links carry and those that are reduced in the
/// network; merge_equals() has counted those of merged operations.
void flows_of(const ExecDag& dag, const PreparedDag& prepared, OpId op, Fidelity fidelity,
              const SimulationOutput& output, OpFlows& result);

/// The number of flows of a communication at fidelity hops. All pairs of an all-to-all count, empty
/// ones too.
[[nodiscard]] std::size_t flow_count(const ExecDag& dag, const PreparedDag& prepared, OpId op);

/// How long these flows take alone.
[[nodiscard]] Seconds time_alone(const OpFlows& flows, const PreparedDag& prepared,
                                 const Cluster& cluster);
/// The longest time that one of these flows takes alone: of a transfer, which has a message of each
/// folded rank.
[[nodiscard]] Seconds longest_alone(std::span<const OpFlow> flows, const PreparedDag& prepared,
                                    const Cluster& cluster);
/// How long the operation takes alone; adds to `output`, too. Not for a DAG prepared for macro.
[[nodiscard]] Seconds time_alone(const ExecDag& dag, const PreparedDag& prepared, OpId op,
                                 const Cluster& cluster, const SimulationOutput& output);

/// Payload and shares of a collective, in bytes.
[[nodiscard]] CollectivePayload payload_of(const ExecDag& dag, OpId op);

}  // namespace parsim::sim
