#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "core/kernel_times.hpp"
#include "lowering/gradient_flow.hpp"
#include "lowering/recompute.hpp"
#include "strategies/best/candidates.hpp"
#include "strategies/estimated_below.hpp"
#include "strategies/move_borders.hpp"
#include "strategies/slots_by_time.hpp"
#include "strategies/stages.hpp"

namespace parsim::strategies {

namespace {

/// By stage the index of its rank list; nothing unless each has one of its own, in an order that is
/// known.
std::optional<std::vector<std::size_t>> lists_of_stages(const Plan& plan) {
  if (!reordered(plan, PipelineSchedule::zero_bubble)) return std::nullopt;
  const std::vector<RankList>& lists = plan.schedule.rank_lists;
  std::vector<std::size_t> list_of(lists.size());
  for (std::size_t i = 0; i < lists.size(); ++i) {
    const auto stage = static_cast<std::size_t>(lists[i].slots.front().stage);
    list_of[stage] = i;
    const bool several =
        std::any_of(lists[i].slots.begin(), lists[i].slots.end(),
                    [&](const Slot& slot) { return slot.stage != lists[i].slots.front().stage; });
    if (several) return std::nullopt;
  }
  return list_of;
}

/// Forward, backward and weight gradients of a micro-batch, by stage, by the times of kernels on
/// the slowest kind of its devices.
std::vector<StageTimes> times_of(const StrategyInput& input, const Plan& plan,
                                 const std::vector<std::size_t>& list_of) {
  const Network& network = input.network;
  const lowering::GradientFlow flow = lowering::gradient_flow(network);
  const std::vector<bool> dropped = lowering::dropped_outputs(network, plan);
  KernelTimes kernels(network, input.cost, input.precision, input.reduce_precision);
  const std::int64_t samples = plan.batch / plan.schedule.micro_batches;
  std::vector<StageTimes> stages(list_of.size());
  for (std::size_t s = 0; s < stages.size(); ++s) {
    std::set<std::int32_t> models;
    for (const DeviceId device : plan.schedule.rank_lists[list_of[s]].devices) {
      if (!models.insert(input.cluster[device].model).second) continue;
      StageTimes own;
      for (std::size_t l = 0; l < plan.layers.size(); ++l) {
        if (static_cast<std::size_t>(plan.schedule.stage_of_layer[l]) != s) continue;
        const LayerId id{l};
        for (const Cell& cell : cells(network, id, plan.layers[l], samples)) {
          if (cell.device != device) continue;
          for (const Pass pass : lowering::passes_of(network, flow, id)) {
            const Seconds time = kernels.of(id, cell.part, pass, device).time;
            if (pass == Pass::forward && dropped[l]) own.backward += time;
            (pass == Pass::forward            ? own.forward
             : pass == Pass::backward_weights ? own.weights
                                              : own.backward) += time;
          }
        }
      }
      const auto whole = [](const StageTimes& one) {
        return one.forward + one.backward + one.weights;
      };
      if (whole(own) > whole(stages[s])) stages[s] = own;
    }
  }
  return stages;
}

/// How many micro-batches more fit on the fullest device of a list; negative: too many.
std::int32_t room(const StrategyInput& input, const RankList& list, std::int32_t kept,
                  const std::vector<lowering::MemoryUse>& uses) {
  double least = std::numeric_limits<double>::infinity();
  for (const DeviceId device : list.devices) {
    const lowering::MemoryUse& use = uses[device.index()];
    const auto each = std::max(1.0, static_cast<double>(use.activations.value) / kept);
    const auto free = static_cast<double>(input.usable_memory(device).value - use.total().value);
    least = std::min(least, std::floor(free / each));
  }
  return static_cast<std::int32_t>(std::clamp(least, -1e6, 1e6));
}

/// The plan in the order by time that is the fastest by estimate, if it is clearly faster.
std::optional<PricedPlan> ordered_by_time(const StrategyInput& input,
                                          lowering::Estimator& estimator,
                                          const std::vector<double>& boundary,
                                          const PricedPlan& start) {
  constexpr double clearly = 1e-3;
  constexpr int tries = 5;
  const std::optional<std::vector<std::size_t>> list_of = lists_of_stages(start.plan);
  if (!list_of) return std::nullopt;
  const std::int32_t micro_batches = start.plan.schedule.micro_batches;
  std::vector<StageTimes> stages = times_of(input, start.plan, *list_of);
  const std::vector<Seconds> sends = send_times(input, start.plan, boundary);
  for (std::size_t s = 0; s + 1 < stages.size(); ++s) stages[s].send = sends[s];
  std::vector<std::int32_t> refused(stages.size(), std::numeric_limits<std::int32_t>::max());
  Plan plan = start.plan;
  std::vector<lowering::MemoryUse> uses = estimated_memory(estimator, plan);
  std::optional<PricedPlan> best;
  Seconds least = (1 - clearly) * estimated_step(estimator, plan);
  for (int i = 0; i < tries; ++i) {
    bool other = i == 0;
    for (std::size_t s = 0; s < stages.size(); ++s) {
      const RankList& list = plan.schedule.rank_lists[(*list_of)[s]];
      const std::int32_t kept = most_in_flight(list, plan.schedule.split_backward);
      const std::int32_t more = room(input, list, kept, uses);
      if (more < 0) refused[s] = std::min(refused[s], kept);
      const std::int32_t most =
          std::clamp(kept + more, 1, std::max(1, std::min(micro_batches, refused[s] - 1)));
      other = other || most != stages[s].most_kept;
      stages[s].most_kept = most;
    }
    if (!other) break;
    plan.schedule.split_backward = true;
    const std::vector<std::vector<Slot>> slots = slots_by_time(stages, micro_batches);
    for (std::size_t s = 0; s < stages.size(); ++s) {
      plan.schedule.rank_lists[(*list_of)[s]].slots = slots[s];
    }
    uses = estimated_memory(estimator, plan);
    if (overcommit(input, uses) > start.price.overcommit) continue;
    const Seconds step = estimated_below(estimator, plan, least);
    if (step >= least) continue;
    least = step;
    best = start;
    best->plan = plan;
  }
  if (best) best->origin += ", ordered by time";
  return best;
}

}  // namespace

std::vector<Seconds> send_times(const StrategyInput& input, const Plan& plan,
                                const std::vector<double>& boundary) {
  const Schedule& schedule = plan.schedule;
  const std::size_t devices = schedule.rank_lists.size();
  const double samples = static_cast<double>(plan.batch) / schedule.micro_batches;
  std::vector<DeviceId> senders(devices);
  for (const RankList& list : schedule.rank_lists) {
    senders[static_cast<std::size_t>(list.slots.front().stage)] = list.devices.front();
  }
  std::vector<Seconds> times;
  std::set<std::size_t> begun{0};
  for (std::size_t l = 0; l < schedule.stage_of_layer.size(); ++l) {
    const auto stage = static_cast<std::size_t>(schedule.stage_of_layer[l]);
    if (!begun.insert(stage).second) continue;
    const Bytes sent{static_cast<std::int64_t>(boundary[l] * samples)};
    times.resize(std::max(times.size(), stage));
    times[stage - 1] =
        input.cost.transfer(senders[(stage - 1) % devices], senders[stage % devices], sent);
  }
  return times;
}

void add_orders_by_time(const StrategyInput& input, lowering::Estimator& estimator,
                        std::vector<PricedPlan>& finalists) {
  constexpr std::size_t most = 2, most_work = 2'000'000;
  if (input.schedule || input.as_run || input.accepts) return;
  const std::vector<double> boundary = boundary_bytes(input.network, input.precision);
  const StrategyInput plain = as_planned(input);
  std::set<std::pair<std::size_t, std::int32_t>> kinds;
  add_variants_of_best(
      input, finalists, [&](const PricedPlan& start) -> std::optional<std::vector<PricedPlan>> {
        const Schedule& own = start.plan.schedule;
        const std::size_t stages = own.rank_lists.size();
        std::vector<PricedPlan> others;
        // Of many micro-batches a stage the bubble is small, and extracts would not be in their
        // order.
        const bool many = own.micro_batches >= 14 * static_cast<std::int32_t>(stages);
        if (many || stages < 2 || own.blocking_sends) return others;
        if (kinds.size() == most || walk_of(start.plan) > most_work) return std::nullopt;
        if (!kinds.insert({stages, own.micro_batches}).second) return others;
        auto other = ordered_by_time(plain, estimator, boundary, start);
        if (other) others.push_back(*std::move(other));
        return others;
      });
}

}  // namespace parsim::strategies
