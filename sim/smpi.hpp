// An execution DAG as a program of MPI ranks, for SimGrid's own replay (`smpirun -replay`): a twin
// of the simulator that shares no code with it. tests/sim/smpi_test.cpp compares the two.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "core/cost_model.hpp"
#include "core/exec_dag.hpp"
#include "sim/sim.hpp"

namespace parsim::sim {

/// Platform, hostfile and time-independent traces of a step.
struct SmpiReplay {
  std::string platform;             ///< XML, with the settings of SimGrid that the replay needs
  std::string hostfile;             ///< a line per rank
  std::vector<std::string> traces;  ///< by rank
  std::size_t hosts = 0;
};

/// The step as the simulator sees it message by message (Fidelity::p2p): its length in the replay
/// is the makespan that the simulator gives, up to 16 bytes for each empty message, which is what
/// SMPI counts for one.
///
///     rank             an in-order queue of a device (core/dag_traffic.hpp), on the device's host;
///                      a queue for sending and one for receiving are one rank where only
///                      collectives use them
///     kernel           `compute`, 1 GFLOP a second
///     latency, delay   `sleep`: links have latency zero, because SimGrid would share bandwidth
///                      inversely to it
///     dependency       an empty message, unless both operations run on one rank
///     ring             its messages, step by step; a ring that leaves the usual routes has ranks on
///                      hosts of its own, since SimGrid knows one route between two hosts
///     broadcast        its message over all hops at once
///     all-to-all       all pairs at once
///
/// Throws InputError as check_smpi() does, and for messages of 16 GiB.
[[nodiscard]] SmpiReplay smpi_replay(const ExecDag& dag, const Cluster& cluster,
                                     const CostModel& cost, const SimOptions& options);

/// Throws InputError("--smpi", …) for what traces cannot say: costs of NCCL or of measured tables,
/// slow periods, contention, jitter, a host's launches.
void check_smpi(const SimOptions& options);

}  // namespace parsim::sim
