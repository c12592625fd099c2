#include "experiment/step_parts.hpp"

#include <algorithm>
#include <variant>
#include <vector>

#include "core/critical_chain.hpp"

namespace parsim::experiment {

namespace {

CostClass class_of_layer(const Layer& layer) {
  if (layer.kind.as<Conv>() != nullptr) return CostClass::convolutions;
  if (layer.kind.as<Attention>() != nullptr) return CostClass::attention;
  const bool product = layer.kind.as<Dense>() != nullptr || layer.kind.as<MatMul>() != nullptr;
  return product ? CostClass::products : CostClass::memory;
}

CostClass class_of_kernel(const ExecDag& dag, OpId id, const CostModel& cost) {
  switch (device_time(dag, id, cost).origin) {
    case Origin::measured:
    case Origin::scaled:
      return CostClass::measured;
    case Origin::guessed:
      return CostClass::borrowed;
    case Origin::published:
    case Origin::modelled:
      break;
  }
  if (dag.kind(id) != OpKind::compute) return CostClass::memory;
  const WorkId work = std::get<Compute>(dag.op(id)).work;
  return class_of_layer(dag.network[dag.work(work).layer]);
}

CostClass class_of(const ExecDag& dag, OpId id, const CostModel& cost, const Cluster& cluster) {
  const auto by_machines = [&](auto first, auto last) {
    const NodeId machine = cluster[*first].node;
    const bool one =
        std::all_of(first, last, [&](DeviceId device) { return cluster[device].node == machine; });
    return one ? CostClass::inside : CostClass::between;
  };
  switch (dag.kind(id)) {
    case OpKind::transfer: {
      const Transfer transfer = std::get<Transfer>(dag.op(id));
      const DeviceId ends[] = {transfer.from, transfer.to};
      return by_machines(std::begin(ends), std::end(ends));
    }
    case OpKind::collective: {
      const std::vector<DeviceId>& group = dag.group(std::get<Collective>(dag.op(id)).group);
      return by_machines(group.begin(), group.end());
    }
    case OpKind::delay:
      return CostClass::gaps;
    case OpKind::compute:
    case OpKind::update:
    case OpKind::local:
      break;
  }
  return class_of_kernel(dag, id, cost);
}

}  // namespace

StepParts step_parts(const ExecDag& dag, const Timeline& timeline, const CostModel& cost,
                     const Cluster& cluster) {
  StepParts parts{};
  const double step = makespan(timeline).count();
  if (step <= 0) return parts;
  double explained = 0;
  for (const OpId id : critical_chain(dag, timeline, cluster.devices.size())) {
    const Span& span = timeline.spans[id.index()];
    const double share = (span.end - span.start).count() / step;
    if (share <= 0) continue;
    parts[static_cast<std::size_t>(class_of(dag, id, cost, cluster))] += share;
    explained += share;
  }
  parts[static_cast<std::size_t>(CostClass::gaps)] += std::max(0.0, 1 - explained);
  return parts;
}

}  // namespace parsim::experiment
