#include "lowering/lower.hpp"

#include <fmt/format.h>

#include "lowering/dag_sink.hpp"
#include "lowering/walk_passes.hpp"
#include "lowering/walk_sums.hpp"

namespace parsim::lowering {

namespace {

/// `memory`: null if it is not asked for.
ExecDag lower(const Network& network, const Cluster& cluster, const Plan& plan,
              std::vector<MemoryUse>* memory) {
  validate(plan, network, cluster, fmt::format("plan of strategy '{}'", plan.strategy));
  ExecDag dag(network, plan.batch, plan.precision, plan.optimizer, plan.reduce_precision);
  dag.strategy = plan.strategy;
  dag.cluster = plan.cluster;
  DagSink sink(dag);
  FragmentStore store(network, cluster, nullptr);
  Walk<DagSink> walk(store, sink);
  walk.parts().find_layers(plan);
  walk.run();
  if (memory != nullptr) *memory = memory_use(walk.parts());
  return dag;
}

}  // namespace

ExecDag lower(const Network& network, const Cluster& cluster, const Plan& plan) {
  return lower(network, cluster, plan, nullptr);
}

Lowered lower_with_memory(const Network& network, const Cluster& cluster, const Plan& plan) {
  std::vector<MemoryUse> memory;
  ExecDag dag = lower(network, cluster, plan, &memory);
  return {std::move(dag), std::move(memory)};
}

}  // namespace parsim::lowering
