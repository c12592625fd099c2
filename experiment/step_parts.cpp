#include "experiment/step_parts.hpp"

#include <algorithm>
#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "core/critical_chain.hpp"

namespace parsim::experiment {

namespace {

CostClass class_of_layer(const Layer& layer) {
  if (layer.kind.as<Conv>() != nullptr) return CostClass::convolutions;
  if (layer.kind.as<Attention>() != nullptr) return CostClass::attention;
  const bool product = layer.kind.as<Dense>() != nullptr || layer.kind.as<MatMul>() != nullptr ||
                       layer.kind.as<ExpertDense>() != nullptr;
  return product ? CostClass::products : CostClass::memory;
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

namespace {

/// What collectives take without payload, by kind and group.
class Launches {
 public:
  Launches(const ExecDag& dag, const CostModel& cost) : dag_(dag), cost_(cost) {}

  [[nodiscard]] double of(OpId id) {
    if (dag_.kind(id) != OpKind::collective) return 0;
    const Collective collective = std::get<Collective>(dag_.op(id));
    const auto [known, fresh] = known_.try_emplace({collective.kind, collective.group}, 0.0);
    if (fresh) {
      const std::vector<DeviceId>& group = dag_.group(collective.group);
      const Bytes least{static_cast<std::int64_t>(4 * group.size())};
      known->second = cost_.collective(collective.kind, group, least).count();
    }
    return known->second;
  }

 private:
  const ExecDag& dag_;
  const CostModel& cost_;
  std::map<std::pair<CollectiveKind, GroupId>, double> known_;
};

}  // namespace

StepParts step_parts(const ExecDag& dag, const Timeline& timeline, const CostModel& cost,
                     const Cluster& cluster) {
  StepParts parts{};
  const double step = makespan(timeline).count();
  if (step <= 0) return parts;
  Launches launches(dag, cost);
  double explained = 0;
  for (const OpId id : critical_chain(dag, timeline, cluster.devices.size())) {
    const Span& span = timeline.spans[id.index()];
    const double share = (span.end - span.start).count() / step;
    if (share <= 0) continue;
    const double launch = std::min(share, launches.of(id) / step);
    parts[static_cast<std::size_t>(CostClass::launches)] += launch;
    parts[static_cast<std::size_t>(class_of(dag, id, cost, cluster))] += share - launch;
    explained += share;
  }
  parts[static_cast<std::size_t>(CostClass::gaps)] += std::max(0.0, 1 - explained);
  return parts;
}

}  // namespace parsim::experiment
