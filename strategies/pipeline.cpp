// Pipeline parallelism: contiguous layers on each device, micro-batches through them in the order
// of GPipe (Huang et al. 2019) or one-forward-one-backward (PipeDream-Flush, Narayanan et al. 2021,
// section 2.2).
#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "strategies/device_order.hpp"
#include "strategies/estimate.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/price.hpp"
#include "strategies/shares.hpp"
#include "strategies/stages.hpp"

namespace parsim {

namespace {

constexpr std::int64_t most_micro_batches = 4096;  ///< each is an operation per layer and pass

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

/// Numbers of micro-batches worth a look: divisors of the batch up to sixteen a stage. The bubble
/// is small from four a stage on (GPipe, section 2.3), but every micro-batch launches its kernels
/// anew.
std::set<std::int32_t> numbers_of_micro_batches(std::int64_t batch, std::size_t stages) {
  std::set<std::int32_t> numbers{1};
  for (std::size_t a_stage = 1; stages > 1 && a_stage <= 16; a_stage *= 2) {
    auto divisor = std::min<std::int64_t>(static_cast<std::int64_t>(a_stage * stages), batch);
    while (batch % divisor != 0) --divisor;
    numbers.insert(static_cast<std::int32_t>(divisor));
  }
  return numbers;
}

Plan plan_with(const StrategyInput& input, const std::vector<DeviceId>& devices,
               std::int32_t micro_batches) {
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

}  // namespace

Plan plan_pipeline(const StrategyInput& input) {
  std::vector<DeviceId> devices = workers(input);
  if (devices.size() > input.network.layers.size()) devices.resize(input.network.layers.size());
  devices = in_chain_order(input, devices);
  if (input.micro_batches) {
    expect_whole_micro_batches(input.batch, *input.micro_batches, "pipeline");
    return plan_with(input, devices, *input.micro_batches);
  }
  // The fastest that fits by the estimate; ties go to fewer micro-batches.
  Estimator estimator(input);
  std::optional<std::pair<Price, Plan>> best;
  const auto attempt = [&](std::int32_t number) {
    Plan plan = plan_with(input, devices, number);
    const Price price{fits(input, plan), estimator.step_time(plan)};
    if (!best || price.better_than(best->first)) best = {price, std::move(plan)};
  };
  const std::set<std::int32_t> numbers = numbers_of_micro_batches(input.batch, devices.size());
  for (const std::int32_t number : numbers) attempt(number);
  // Smaller micro-batches need less memory.
  for (std::int64_t more = 2 * *numbers.rbegin(); !best->first.fits && more <= input.batch;
       more *= 2) {
    if (more <= most_micro_batches && input.batch % more == 0) {
      attempt(static_cast<std::int32_t>(more));
    }
  }
  return std::move(best->second);
}

}  // namespace parsim
