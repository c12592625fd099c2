// Pipeline parallelism: contiguous layers on each device, micro-batches through them in the order
// of GPipe (Huang et al. 2019) or one-forward-one-backward (PipeDream-Flush, Narayanan et al. 2021,
// section 2.2).
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "core/errors.hpp"
#include "strategies/plan_support.hpp"

namespace parsim {

namespace {

/// Forward and backward time of a layer for a micro-batch on a device.
double layer_time(const StrategyInput& input, LayerId id, std::int64_t samples, DeviceId device) {
  const Layer& layer = input.network[id];
  if (layer.kind.as<Input>() != nullptr) return 0;
  const Part part{whole(layer.out, samples), {}};
  return (input.cost.compute(input.network, id, part, Pass::forward, device, input.precision).time +
          input.cost.compute(input.network, id, part, Pass::backward, device, input.precision).time)
      .count();
}

/// First layer of every stage: contiguous stages, stage s on devices[s], so that the slowest stage
/// is as fast as possible; among equals the earlier cut. Dynamic programming over (stages, layers).
std::vector<std::size_t> balanced_stages(const StrategyInput& input,
                                         const std::vector<DeviceId>& devices,
                                         std::int64_t samples) {
  const std::size_t layers = input.network.layers.size(), stages = devices.size();
  constexpr double never = std::numeric_limits<double>::infinity();
  std::vector<std::vector<double>> best(stages + 1, std::vector<double>(layers + 1, never));
  std::vector<std::vector<std::size_t>> cut(stages + 1, std::vector<std::size_t>(layers + 1, 0));
  best[0][0] = 0;
  for (std::size_t s = 0; s < stages; ++s) {
    std::vector<double> until(layers + 1, 0);  // time of the first n layers on this stage's device
    for (std::size_t l = 0; l < layers; ++l)
      until[l + 1] = until[l] + layer_time(input, LayerId{l}, samples, devices[s]);
    for (std::size_t end = s + 1; end <= layers; ++end) {
      for (std::size_t begin = s; begin < end; ++begin) {
        const double slowest = std::max(best[s][begin], until[end] - until[begin]);
        if (slowest < best[s + 1][end]) {
          best[s + 1][end] = slowest;
          cut[s + 1][end] = begin;
        }
      }
    }
  }
  std::vector<std::size_t> first(stages);
  std::size_t end = layers;
  for (std::size_t s = stages; s-- > 0;) end = first[s] = cut[s + 1][end];
  return first;
}

/// Slots of stage `stage` of `stages`: all forwards then all backwards, or one of each in turn
/// after a warm-up that fills the stages behind it.
std::vector<Slot> slots(PipelineSchedule schedule, std::int32_t stage, std::int32_t stages,
                        std::int32_t micro_batches) {
  const std::int32_t warm_up = schedule == PipelineSchedule::gpipe
                                   ? micro_batches
                                   : std::min(micro_batches, stages - stage - 1);
  std::vector<Slot> order;
  for (std::int32_t m = 0; m < warm_up; ++m) order.push_back({stage, m, Direction::forward});
  for (std::int32_t m = warm_up; m < micro_batches; ++m) {
    order.push_back({stage, m, Direction::forward});
    order.push_back({stage, m - warm_up, Direction::backward});
  }
  for (std::int32_t m = micro_batches - warm_up; m < micro_batches; ++m) {
    order.push_back({stage, m, Direction::backward});
  }
  return order;
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
  if (micro_batches < 1 || input.batch % micro_batches != 0) {
    throw InputError("strategy 'pipeline'",
                     fmt::format("batch {} in {} micro-batches", input.batch, micro_batches),
                     "a number of micro-batches that divides the batch");
  }
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
        {{devices[index]}, slots(input.schedule, s, stages, micro_batches)});
  }
  plan.buckets = gradient_buckets(input);
  return plan;
}

}  // namespace parsim
