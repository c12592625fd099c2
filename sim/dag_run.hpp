// One simulation of a prepared DAG, in the process that calls it.
#pragma once

#include <span>

#include "core/timeline.hpp"
#include "sim/prepared_dag.hpp"
#include "sim/sim.hpp"

namespace parsim {

/// Where a simulation leaves what it found.
struct Findings {
  std::span<Span> spans;        ///< by operation; one that never ended keeps a negative end
  std::span<double> hop_bytes;  ///< added to, by Hop::index()
  double& spared_bytes;         ///< added to, see Timeline
};

/// Runs the DAG. With SimGrid: once per process.
///
/// Kernels take the time that the cost model says, whatever else runs, so their ends follow from
/// those of their predecessors by addition; only flows are left to the engine. That is exact to the
/// bit, makes nothing of a million kernels, and no event of a kernel is there to be merged with
/// another less than 1 ns away.
void simulate(const ExecDag& dag, const PreparedDag& prepared, const Cluster& cluster,
              const SimOptions& options, const Findings& findings);

}  // namespace parsim
