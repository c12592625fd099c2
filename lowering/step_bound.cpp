#include "lowering/step_bound.hpp"

#include <algorithm>
#include <limits>

namespace parsim::lowering {

namespace {

double least(const std::vector<double>& times) {
  return times.empty() ? 0 : *std::min_element(times.begin(), times.end());
}

/// Whether every cell reads every operand: a concatenation's cut by channel does not.
bool reads_all(const LayerFragment& layer) {
  return std::all_of(layer.plan.cuts.begin(), layer.plan.cuts.end(), [](const Cut& cut) {
    return cut.dim == Dim::sample || cut.dim == Dim::replica;
  });
}

/// By layer: how often a micro-batch's backward pass computes its output again.
std::vector<std::size_t> recomputations(const PlanFragments& parts) {
  const Plan& plan = *parts.plan;
  std::vector<std::size_t> times(plan.layers.size(), 0);
  if (std::none_of(plan.layers.begin(), plan.layers.end(),
                   [](const LayerPlan& layer) { return layer.recompute; })) {
    return times;
  }
  const std::vector<bool> dropped = dropped_outputs(parts.network, plan);
  std::vector<std::vector<LayerId>> members;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    const auto stage = static_cast<std::size_t>(plan.schedule.stage_of_layer[l]);
    if (stage >= members.size()) members.resize(stage + 1);
    members[stage].emplace_back(l);
  }
  for (const std::vector<LayerId>& stage : members) {
    for (const LayerVisit& visit :
         backward_visits(parts.network, parts.structure.flow, dropped, stage)) {
      if (visit.forward) ++times[visit.layer.index()];
    }
  }
  return times;
}

}  // namespace

void StepBound::find(const PlanFragments& parts, std::size_t device_count) {
  constexpr double never = std::numeric_limits<double>::infinity();
  const GradientFlow& flow = parts.structure.flow;
  const auto micro_batches = static_cast<double>(parts.plan->schedule.micro_batches);
  const std::vector<std::size_t> again = recomputations(parts);
  before_.assign(parts.layers.size(), 0);
  after_.assign(parts.layers.size(), 0);
  devices.assign(device_count, {never, 0, never});
  for (std::size_t l = 0; l < parts.layers.size(); ++l) {  // producers come first
    if (flow.source[l]) continue;
    const LayerFragment& layer = *parts.layers[l];
    const bool all = reads_all(layer);
    bool first = true;
    for (const LayerId input : parts.network.layers[l].inputs) {
      const std::size_t p = input.index();
      double before = 0, after = 0;
      if (!flow.source[p]) {
        const LayerFragment& producer = *parts.layers[p];
        before = before_[p] + least(producer.forward);
        if (flow.wants[p] && flow.reaches_loss[l]) {
          after = least(producer.backward) + std::max(after_[p], least(producer.weights));
        }
      }
      before_[l] = first ? before
                   : all ? std::max(before_[l], before)
                         : std::min(before_[l], before);
      after_[l] = first ? after : all ? std::max(after_[l], after) : std::min(after_[l], after);
      first = false;
    }
    // Data gradients leave before the last kernel, which is that of weights; before those of all
    // layers, if backward is split.
    const bool sends = flow.wants[l] && (!flow.two_kernels[l] || flow.passes_on[l]) &&
                       !parts.plan->schedule.split_backward;
    for (std::size_t c = 0; c < layer.devices.size(); ++c) {
      Device& device = devices[layer.devices[c].index()];
      device.before = std::min(device.before, before_[l]);
      const double forward = layer.forward[c] * static_cast<double>(1 + again[l]);
      device.work += micro_batches * (forward + layer.backward[c] + layer.weights[c]);
      const double after = sends ? std::max(0.0, after_[l] - layer.weights[c]) : 0;
      device.after = std::min(device.after, after);
    }
  }
  for (Device& device : devices) {
    if (device.before == never) device = {};
  }
}

}  // namespace parsim::lowering
