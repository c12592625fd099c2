#include "experiment/step_parts.hpp"

#include <algorithm>
#include <map>
#include <string>
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

std::vector<StepParts> parts_by_model(const ExecDag& dag, const Timeline& timeline,
                                      const CostModel& cost, const Cluster& cluster,
                                      const StepParts& chain,
                                      const std::function<Seconds(DeviceId)>& waits) {
  const double step = makespan(timeline).count();
  const auto on_device = [&](OpId id) {
    const OpKind kind = dag.kind(id);
    return kind == OpKind::compute || kind == OpKind::update || kind == OpKind::local;
  };
  std::map<DeviceId, double> busy;
  for (std::size_t i = 0; i < dag.size() && step > 0; ++i) {
    if (!on_device(OpId{i})) continue;
    const Span& span = timeline.spans[i];
    busy[DeviceId{dag.record(OpId{i}).device}] += (span.end - span.start).count();
  }
  std::map<std::string, std::pair<double, DeviceId>> busiest;  // by model
  for (const auto& [device, seconds] : busy) {
    const double whole = seconds + waits(device).count();
    auto& [most, which] = busiest[cluster.model(device).name];
    if (whole <= most) continue;
    most = whole;
    which = device;
  }
  std::vector<StepParts> all;
  if (busiest.size() < 2) return all;
  std::map<DeviceId, StepParts> parts;
  for (const auto& [model, one] : busiest) parts.try_emplace(one.second);
  for (std::size_t i = 0; i < dag.size(); ++i) {
    if (!on_device(OpId{i})) continue;
    const auto at = parts.find(DeviceId{dag.record(OpId{i}).device});
    if (at == parts.end()) continue;
    const Span& span = timeline.spans[i];
    at->second[static_cast<std::size_t>(class_of_kernel(dag, OpId{i}, cost))] +=
        (span.end - span.start).count() / step;
  }
  constexpr CostClass communication[] = {CostClass::inside, CostClass::between,
                                         CostClass::launches};
  double of_chain = 0;
  for (const CostClass one : communication) of_chain += chain[static_cast<std::size_t>(one)];
  for (auto& [device, own] : parts) {
    const double waited = waits(device).count() / step;
    for (const CostClass one : communication) {
      const auto c = static_cast<std::size_t>(one);
      if (of_chain > 0) own[c] += waited * chain[c] / of_chain;
    }
    all.push_back(own);
  }
  return all;
}

}  // namespace parsim::experiment
