// One simulation of a prepared DAG, in the process that calls it.
#pragma once

#include <span>

#include "core/timeline.hpp"
#include "sim/fair_flows.hpp"
#include "sim/flow_engine.hpp"
#include "sim/prepared_dag.hpp"
#include "sim/sim.hpp"

namespace parsim::sim {

/// Where a simulation writes its results.
struct SimulationOutput {
  std::span<Span> spans;             ///< by operation; one that never ended keeps a negative end
  std::span<double> hop_bytes;       ///< added to, by Hop::index()
  double& bytes_reduced_in_network;  ///< added to, see Timeline
  double* apart = nullptr;           ///< added to: operations of a folded DAG whose flows end apart
};

/// Whether these are dates of equal units of a folded DAG, whose rates are found in another order.
/// SimGrid's dates have a resolution of 1 ns.
[[nodiscard]] inline bool one_date(Seconds a, Seconds b, Engine engine) {
  const Seconds slack = 1e-10 * a + Seconds{engine == Engine::simgrid ? 2e-9 : 0};
  return a <= b + slack && b <= a + slack;
}

/// Runs the DAG. With SimGrid in this process: once.
///
/// Kernels take the time of the cost model even if others run, so their ends follow from those of
/// their predecessors by addition; only flows go to the engine. That is exact to the bit, costs
/// little for a million kernels, and leaves no kernel events that SimGrid would merge with others
/// less than 1 ns away. Returns the work of the flows, which only the fast engine counts.
FlowWork simulate(const ExecDag& dag, const PreparedDag& prepared, const Cluster& cluster,
                  const SimOptions& options, const SimulationOutput& output,
                  SimgridIn where = SimgridIn::this_process);

}  // namespace parsim::sim
