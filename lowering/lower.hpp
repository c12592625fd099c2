// From any plan to its execution DAG: one function for all strategies, so that resharding, gradient
// synchronisation and pipelining exist once.
#pragma once

#include <limits>
#include <optional>
#include <vector>

#include "core/cost_model.hpp"
#include "core/exec_dag.hpp"
#include "core/executor.hpp"
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

/// How much is folded. An engine may be able to run less than the most.
struct Folding {
  /// Fewer replicas than an engine could not run: each of several, among equal ones.
  std::size_t most_units = std::numeric_limits<std::size_t>::max();
  /// Of tensor- or expert-parallel groups no more than these; 1: none.
  std::size_t most_ranks = std::numeric_limits<std::size_t>::max();
};

/// The same with the operations of one replica of each class of equal ones and one of their equal
/// ranks (ExecDag::fold), if the plan has some; else of all devices. `cost` says which devices are
/// alike. For engines that can run it (Executor::run_folded).
[[nodiscard]] Lowered lower_folded(const Network& network, const Cluster& cluster,
                                   const CostModel& cost, const Plan& plan, Folding folding = {});

/// The plan of one replica of each class of equal ones, if it has some: how much work lower_folded
/// has.
/// Devices of one model count as alike.
[[nodiscard]] std::optional<Plan> one_replica(const Cluster& cluster, const Plan& plan);

/// A plan's step on an engine: folded, if the engine can run that; else of all devices.
struct PlanRun {
  Lowered lowered;
  Timeline timeline;
};
[[nodiscard]] PlanRun run_folded(const Network& network, const Cluster& cluster,
                                 const CostModel& cost, const Plan& plan, Executor& engine);

}  // namespace parsim::lowering
