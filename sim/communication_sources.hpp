// What the times of communication rest on, and what NCCL cannot do as options ask, for reports.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/cost_model.hpp"
#include "core/exec_dag.hpp"
#include "sim/sim.hpp"

namespace parsim::sim {

/// Throws InputError (naming --algorithm or --protocol) if the options ask of the collective what
/// NCCL cannot do there.
void check_collective(CollectiveKind kind, std::span<const DeviceId> group, const Cluster& cluster,
                      const SimOptions& options);

/// What the times of a DAG's communication rest on. Parts of the sum of all operations' times on an
/// idle network: they add up to 1, or are 0 if nothing communicates.
struct CommunicationSources {
  double measured = 0, library = 0, links = 0;
  std::vector<std::string> lacking;  ///< "all-reduce over 4": collectives without a table
  /// Priced by a table that does not say on how many machines it was measured, but over several.
  std::vector<std::string> assumed;
  // Of --algorithm and --protocol:
  std::size_t collectives = 0, refused = 0;  ///< of GPUs, and those that cannot run so
  std::string flag, reason, accepted;        ///< of the first refused
};
/// `times` by OpId.
[[nodiscard]] CommunicationSources communication_sources(const ExecDag& dag,
                                                         std::span<const Seconds> times,
                                                         const Cluster& cluster,
                                                         const CostModel& cost,
                                                         const SimOptions& options);

}  // namespace parsim::sim
