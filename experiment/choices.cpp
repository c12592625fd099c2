#include "experiment/choices.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/text.hpp"
#include "lowering/sync.hpp"

namespace parsim::experiment {

namespace {

/// Of the first stage: "8 replicas".
std::string zero_group_of(const Cluster& cluster, const Plan& plan,
                          const strategies::StageSummary& stage) {
  std::vector<DeviceId> replicas;  // tensor-parallel groups are neighbours
  const auto stride = static_cast<std::size_t>(stage.tp.value_or(1));
  for (std::size_t i = 0; i < stage.devices.size(); i += stride) {
    replicas.push_back(stage.devices[i]);
  }
  std::sort(replicas.begin(), replicas.end());
  const auto groups = lowering::zero_groups(
      replicas, plan.layers[stage.layers.front().index()].zero.group, cluster);
  return counted(std::ssize(groups.empty() ? replicas : groups.front()), "replica");
}

}  // namespace

std::vector<Choice> choices_of(const Cluster& cluster, const Plan& plan,
                               const strategies::Degrees& degrees,
                               const std::vector<strategies::StageSummary>& stages) {
  std::vector<Choice> choices;
  if (degrees.zero.value_or(0) > 0) {
    choices.push_back({"ZeRO groups of", zero_group_of(cluster, plan, stages.front())});
  }
  if (!plan.buckets.empty()) {
    choices.push_back({"gradient buckets", std::to_string(plan.buckets.size())});
  }
  const ReduceEvery every = plan.schedule.reduce_every;
  if (stages.size() == 1 && plan.schedule.micro_batches > 1 && every != ReduceEvery::automatic) {
    choices.push_back({"gradients reduced",
                       every == ReduceEvery::step ? "once a step" : "after every micro-batch"});
  }
  if (degrees.zero == 3 && plan.schedule.late_gathers) {
    choices.push_back({"gathers in backward", "when their use begins"});
  }
  if (stages.size() > 1) {
    choices.push_back(
        {"sends between stages", plan.schedule.blocking_sends ? "blocking" : "overlapped"});
  }
  return choices;
}

}  // namespace parsim::experiment
