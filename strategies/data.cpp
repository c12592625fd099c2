// Data parallelism: every device has all the weights and its share of the batch; gradients are
// summed in buckets while the backward pass still runs, as PyTorch's DistributedDataParallel does
// (Li et al. 2020). Shares are equal, or in proportion to the devices' speeds as in Whale (Jia et
// al., USENIX ATC 2022).
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "core/errors.hpp"
#include "strategies/buckets.hpp"
#include "strategies/experts.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/shares.hpp"

namespace parsim::strategies {

namespace {

/// "samples by speed: 38 on each p100-sxm2, 26 on each ...": devices of one model get one number,
/// give or take one.
std::string describe(const StrategyInput& input, const LayerPlan& share) {
  std::map<std::string, std::pair<std::int64_t, std::int64_t>> ranges;
  for (std::size_t d = 0; d < share.devices.size(); ++d) {
    const std::int64_t size = share.cuts[0].sizes[d];
    const auto [at, fresh] =
        ranges.try_emplace(input.cluster.model(share.devices[d]).name, std::pair{size, size});
    at->second = {std::min(at->second.first, size), std::max(at->second.second, size)};
  }
  std::vector<std::string> parts;
  for (const auto& [model, range] : ranges) {
    const auto [least, most] = range;
    parts.push_back(least == most ? fmt::format("{} on each {}", least, model)
                                  : fmt::format("{} to {} on each {}", least, most, model));
  }
  return fmt::format("samples by speed: {}", join(parts));
}

}  // namespace

Plan plan_data(const StrategyInput& input) {
  const std::vector<DeviceId> devices = workers(input);
  Plan plan = empty_plan(input, "data", devices);
  LayerPlan share = by_sample(input.batch, devices);
  if (input.shares == ShareRule::proportional && devices.size() > 1) {
    share.cuts[0].sizes = sample_shares(input, devices, input.batch);
    plan.notes.push_back(describe(input, share));
  }
  share.sync = chosen_sync(input);
  for (LayerPlan& layer : plan.layers) layer = share;
  if (input.expert_parallel) {
    expect_experts(input);
    if (expert_degrees(input, devices.size()).empty()) {
      throw InputError("--ep",
                       fmt::format("{} of {} replicas", *input.expert_parallel, devices.size()),
                       "accepted: a divisor of the replicas");
    }
    divide_experts(input.network, static_cast<std::size_t>(*input.expert_parallel), 1, plan);
  }
  note_idle(plan, share);
  plan.buckets = gradient_buckets(input);
  return plan;
}

}  // namespace parsim::strategies
