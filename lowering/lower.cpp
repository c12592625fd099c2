#include "lowering/lower.hpp"

#include <fmt/format.h>

#include "lowering/dag_sink.hpp"
#include "lowering/walk_passes.hpp"
#include "lowering/walk_sums.hpp"

namespace parsim::lowering {

ExecDag lower(const Network& network, const Cluster& cluster, const Plan& plan) {
  validate(plan, network, cluster, fmt::format("plan of strategy '{}'", plan.strategy));
  ExecDag dag(network, plan.batch, plan.precision, plan.optimizer, plan.reduce_precision);
  dag.strategy = plan.strategy;
  dag.cluster = plan.cluster;
  DagSink sink(dag);
  FragmentStore store(network, cluster, nullptr);
  Walk<DagSink> walk(store, sink);
  walk.parts().find_layers(plan);
  walk.run();
  return dag;
}

}  // namespace parsim::lowering
