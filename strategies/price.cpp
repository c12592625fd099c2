#include "strategies/price.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "core/errors.hpp"
#include "core/timeline.hpp"
#include "strategies/lower.hpp"
#include "strategies/recompute.hpp"
#include "strategies/sync.hpp"

namespace parsim {

Plan with_savings(const StrategyInput& input, Plan plan) {
  if (input.zero_stage > 0) {
    for (LayerPlan& layer : plan.layers) {
      const StatePlacement sharded{StatePlacement::Kind::sharded, {}};
      layer.optimizer = sharded;
      if (input.zero_stage >= 2) layer.gradients = sharded;
      if (input.zero_stage == 3) layer.weights = sharded;
    }
  }
  if (input.recompute == Recompute::segments) recompute_segments(input.network, plan);
  if (input.recompute == Recompute::attention) recompute_attention(input.network, plan);
  return plan;
}

namespace {

bool splits_states(const Network& network, const Plan& plan) {
  const std::int64_t samples = plan.batch / plan.schedule.micro_batches;
  std::vector<std::vector<Cell>> all;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    all.push_back(cells(network, LayerId{l}, plan.layers[l], samples));
  }
  const std::vector<SyncGroup> groups = sync_groups(network, plan, {all.begin(), all.end()});
  return std::any_of(groups.begin(), groups.end(),
                     [](const SyncGroup& group) { return group.zero_stage > 0; });
}

}  // namespace

std::vector<std::string> savings_notes(const StrategyInput& input, const Plan& plan) {
  std::vector<std::string> notes;
  if (input.zero_stage > 0) {
    constexpr std::array<std::string_view, 3> split{"optimizer states", "gradients", "weights"};
    const auto stage = static_cast<std::size_t>(input.zero_stage);
    notes.push_back(splits_states(input.network, plan)
                        ? fmt::format("zero: replicas split {}",
                                      fmt::join(split.begin(), split.begin() + stage, ", "))
                        : "zero: nothing is split, because no two devices have the same weights");
  }
  if (input.recompute != Recompute::none) {
    const std::vector<bool> dropped = dropped_outputs(input.network, plan);
    notes.push_back(fmt::format("recompute: {} of {} layers go forward again before backward",
                                std::count(dropped.begin(), dropped.end(), true), dropped.size()));
  }
  return notes;
}

std::vector<MemoryUse> memory_use(const StrategyInput& input, const Plan& plan) {
  if (input.recompute == Recompute::none && input.zero_stage == 0) {
    return memory_use(input.network, input.cluster, plan);
  }
  return memory_use(input.network, input.cluster, with_savings(input, plan));
}

Bytes lacking_memory(const StrategyInput& input, const Plan& plan) {
  const std::vector<MemoryUse> uses = memory_use(input, plan);
  Bytes most{};
  for (std::size_t i = 0; i < uses.size(); ++i) {
    most = std::max(most, Bytes{uses[i].total().value - input.cluster.devices[i].memory.value});
  }
  return most;
}

bool fits(const StrategyInput& input, const Plan& plan) {
  return lacking_memory(input, plan).value == 0;
}

std::function<Seconds(const Plan&)> simulation(const Network& network, const Cluster& cluster,
                                               Executor& executor) {
  return [&network, &cluster, &executor](const Plan& plan) {
    return makespan(executor.run(lower(network, cluster, plan)));
  };
}

Price simulated_price(const StrategyInput& input, const Plan& plan) {
  ensure(input.simulate != nullptr, "a plan is priced without a simulator");
  const Plan priced = with_savings(input, plan);
  return {lacking_memory(input, priced), input.simulate(priced)};
}

std::size_t best_by_simulation(const StrategyInput& input, std::span<const Plan> plans) {
  ensure(!plans.empty(), "no plan to choose from");
  if (plans.size() == 1) return 0;
  if (!input.simulate) {
    for (std::size_t i = 0; i < plans.size(); ++i) {
      if (fits(input, plans[i])) return i;
    }
    return 0;
  }
  std::size_t best = 0;
  Price least;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    const Price price = simulated_price(input, plans[i]);
    if (i == 0 || price.better_than(least)) {
      best = i;
      least = price;
    }
  }
  return best;
}

}  // namespace parsim
