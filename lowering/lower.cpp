#include "lowering/lower.hpp"

#include <fmt/format.h>

#include "lowering/dag_sink.hpp"
#include "lowering/walk_passes.hpp"
#include "lowering/walk_sums.hpp"

namespace parsim::lowering {

namespace {

/// `finder`: null if operations of all devices are wanted; `memory`: null if it is not asked for.
ExecDag lower(const Network& network, const Cluster& cluster, const Plan& plan, UnitFinder* finder,
              std::vector<MemoryUse>* memory) {
  validate(plan, network, cluster, fmt::format("plan of strategy '{}'", plan.strategy));
  ExecDag dag(network, plan.batch, plan.precision, plan.optimizer, plan.reduce_precision);
  dag.strategy = plan.strategy;
  dag.cluster = plan.cluster;
  DagSink sink(dag);
  FragmentStore store(network, cluster, nullptr);
  Walk<DagSink> walk(store, sink, finder);
  walk.parts().find_layers(plan);
  walk.run();
  if (const AlikeUnits* units = walk.parts().units)
    dag.units = std::make_shared<const AlikeUnits>(*units);
  if (memory != nullptr) *memory = memory_use(walk.parts());
  return dag;
}

}  // namespace

ExecDag lower(const Network& network, const Cluster& cluster, const Plan& plan) {
  return lower(network, cluster, plan, nullptr, nullptr);
}

Lowered lower_with_memory(const Network& network, const Cluster& cluster, const Plan& plan) {
  std::vector<MemoryUse> memory;
  ExecDag dag = lower(network, cluster, plan, nullptr, &memory);
  return {std::move(dag), std::move(memory)};
}

Lowered lower_folded(const Network& network, const Cluster& cluster, const CostModel& cost,
                     const Plan& plan, std::size_t most_units) {
  UnitFinder finder(cluster, &cost, most_units);
  std::vector<MemoryUse> memory;
  ExecDag dag = lower(network, cluster, plan, &finder, &memory);
  return {std::move(dag), std::move(memory)};
}

std::optional<Plan> one_replica(const Cluster& cluster, const Plan& plan) {
  UnitFinder finder(cluster, nullptr);
  UnitFinder::Folded folded;
  if (!finder.fold(plan, folded)) return std::nullopt;
  return std::move(folded.plan);
}

PlanRun run_folded(const Network& network, const Cluster& cluster, const CostModel& cost,
                   const Plan& plan, Executor& engine) {
  // The most units first: machines, say. If they are not alike, those of a leaf switch may be.
  std::size_t most = std::numeric_limits<std::size_t>::max();
  for (;;) {
    PlanRun run{lower_folded(network, cluster, cost, plan, most), {}};
    if (run.lowered.dag.units == nullptr) {
      run.timeline = engine.run(run.lowered.dag);
      return run;
    }
    if (std::optional<Timeline> timeline = engine.run_folded(run.lowered.dag)) {
      run.timeline = *std::move(timeline);
      return run;
    }
    most = run.lowered.dag.units->count() - 1;
  }
}

}  // namespace parsim::lowering
