// Pipeline parallelism: contiguous layers on each device, micro-batches through them in the order
// of GPipe (Huang et al. 2019) or one-forward-one-backward (PipeDream-Flush, Narayanan et al. 2021,
// section 2.2).
#include "strategies/plan_support.hpp"
#include "strategies/shares.hpp"
#include "strategies/stages.hpp"

namespace parsim {

namespace {

/// Contiguous stages, stage s on devices[s], so that the slowest stage is as fast as possible.
std::vector<std::size_t> balanced_stages(const StrategyInput& input,
                                         const std::vector<DeviceId>& devices,
                                         std::int64_t samples) {
  std::vector<std::vector<double>> until;
  for (const DeviceId device : devices) {
    std::vector<double>& times = until.emplace_back(1, 0.0);
    for (std::size_t l = 0; l < input.network.layers.size(); ++l) {
      const Part part{whole(input.network.layers[l].out, samples), {}};
      times.push_back(times.back() + layer_time(input, LayerId{l}, part, device).count());
    }
  }
  return chain_split(until);
}

/// The largest divisor of the batch up to four micro-batches per stage: from there on the bubble is
/// small (GPipe, section 2.3: negligible for M >= 4K).
std::int32_t default_micro_batches(std::int64_t batch, std::size_t stages) {
  for (auto m = static_cast<std::int64_t>(4 * stages); m > 1; --m) {
    if (batch % m == 0) return static_cast<std::int32_t>(m);
  }
  return 1;
}

}  // namespace

Plan plan_pipeline(const StrategyInput& input) {
  std::vector<DeviceId> devices = workers(input);
  if (devices.size() > input.network.layers.size()) devices.resize(input.network.layers.size());
  const std::int32_t micro_batches =
      input.micro_batches.value_or(default_micro_batches(input.batch, devices.size()));
  expect_whole_micro_batches(input.batch, micro_batches, "pipeline");
  Plan plan = empty_plan(input, "pipeline", {});
  const std::vector<std::size_t> first =
      balanced_stages(input, devices, input.batch / micro_batches);
  plan.schedule.micro_batches = micro_batches;
  plan.schedule.lanes.clear();
  const auto stages = static_cast<std::int32_t>(devices.size());
  for (std::int32_t s = 0; s < stages; ++s) {
    const auto index = static_cast<std::size_t>(s);
    const std::size_t end = index + 1 < first.size() ? first[index + 1] : plan.layers.size();
    for (std::size_t l = first[index]; l < end; ++l) {
      plan.schedule.stage_of_layer[l] = s;
      plan.layers[l].devices = {devices[index]};
      plan.layers[l].sync = chosen_sync(input);
    }
    plan.schedule.lanes.push_back(
        {{devices[index]}, stage_slots(input.schedule, s, stages, micro_batches)});
  }
  plan.buckets = gradient_buckets(input);
  return plan;
}

}  // namespace parsim
