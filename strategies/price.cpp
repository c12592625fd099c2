#include "strategies/price.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "core/errors.hpp"
#include "core/timeline.hpp"
#include "lowering/folded_runs.hpp"
#include "lowering/recompute.hpp"
#include "lowering/sync.hpp"
#include "lowering/zero_schedule.hpp"
#include "strategies/blocks.hpp"
#include "strategies/estimated_below.hpp"
#include "strategies/plan_support.hpp"

namespace parsim::strategies {

namespace {

/// The first gradient whose devices make no groups as asked for, and what all gradients' would.
std::optional<std::pair<ParameterId, lowering::ZeroGroupRefusal>> zero_group_refusal(
    const StrategyInput& input, const Plan& plan) {
  if (input.zero_stage.value_or(0) == 0 || input.zero_group.all()) return std::nullopt;
  const Plan whole = without_memory_options(input.network, plan);
  std::optional<std::pair<ParameterId, lowering::ZeroGroupRefusal>> refusal;
  std::size_t divides_all = 0;
  bool by_node = true;
  for (const lowering::SyncGroup& group :
       lowering::sync_groups(input.network, input.cluster, whole)) {
    const bool shards = group.devices.size() > 1 && group.mirrors.empty() && !group.served();
    if (!shards) continue;
    const auto makes = [&](const ZeroGroup& groups) {
      return !lowering::zero_groups(group.devices, groups, input.cluster).empty();
    };
    divides_all = std::gcd(divides_all, group.devices.size());
    by_node = by_node && makes({0, true});
    if (refusal || makes(input.zero_group)) continue;
    refusal.emplace(group.contents[0].first,
                    lowering::zero_group_refusal(group.devices, input.zero_group, input.cluster));
  }
  if (!refusal) return std::nullopt;
  // The plan's other gradients may be summed by other numbers of devices.
  refusal->second.accepted =
      divides_all > 1 ? fmt::format("a number that divides {}", divides_all) : "no --zero-group";
  if (by_node) refusal->second.accepted += ", or node";
  if (input.zero_group.node) {
    refusal->second.accepted += ", or as many devices on every machine";
  }
  return refusal;
}

/// Whether a plan with memory options lacks the groups that were asked for.
bool lacks_zero_group(const StrategyInput& input, const Plan& saving) {
  return input.zero_stage.value_or(0) > 0 && !saving.layers.empty() &&
         saving.layers[0].zero.group != input.zero_group;
}

constexpr std::int32_t unusable = std::numeric_limits<std::int32_t>::max();

/// Whether the input decides nothing that a plan has not.
bool leaves_memory_alone(const StrategyInput& input, const Plan& plan) {
  const auto marked = [&](const LayerPlan& layer) {
    return (input.zero_stage && layer.zero.stage > 0) || (input.recompute && layer.recompute);
  };
  return input.zero_stage.value_or(0) == 0 &&
         input.recompute.value_or(Recompute::none) == Recompute::none &&
         std::none_of(plan.layers.begin(), plan.layers.end(), marked);
}

/// Whether backward passes begin before all forward passes have ended, so that micro-batches
/// follow one another.
bool alternates(const RankList& list) {
  const auto forward = [](const Slot& slot) { return slot.direction == Direction::forward; };
  const auto first = std::find_if_not(list.slots.begin(), list.slots.end(), forward);
  return std::find_if(first, list.slots.end(), forward) != list.slots.end();
}

/// Micro-batches of which a step is long enough to tell how long it takes with more; none, if that
/// would save little.
///
/// most_cells   of layers, times micro-batches, that take no time worth saving
struct Extract {
  std::int32_t few = 0, more = 0;
};
constexpr std::size_t walked_at_once = 20'000;  ///< in a few thousandths of a second
std::optional<Extract> extract_of(const Plan& plan, std::size_t most_cells = walked_at_once) {
  const std::vector<RankList>& lists = plan.schedule.rank_lists;
  const auto devices = static_cast<std::int32_t>(lists.size());
  const std::vector<std::int32_t>& stages = plan.schedule.stage_of_layer;
  // Unequal model chunks take longer until one round of micro-batches takes as long as the next.
  const bool interleaved =
      !stages.empty() && *std::max_element(stages.begin(), stages.end()) >= devices;
  const std::int32_t rounds = interleaved ? 4 : 3;
  const Extract extract{rounds * devices, (rounds + 1) * devices};  // multiples: see device_slots
  bool many = plan.schedule.micro_batches >= 14 * devices;
  std::size_t cells = 0;
  for (std::size_t l = 0; many && l < plan.layers.size(); ++l) {
    cells += plan.layers[l].devices.size();
  }
  many = many && cells * static_cast<std::size_t>(plan.schedule.micro_batches) > most_cells;
  if (!many || !std::all_of(lists.begin(), lists.end(), alternates)) return std::nullopt;
  return extract;
}

/// How many times as many micro-batches are left as there are more in the longer extract.
double rounds_of_others(const Plan& plan, const Extract& of) {
  const double others = plan.schedule.micro_batches - of.more;
  return others / (of.more - of.few);
}

/// A step's time from those of some and of more of its micro-batches.
Seconds extrapolated(const Plan& plan, const Extract& of, Seconds shorter, Seconds longer) {
  return longer + (longer - shorter) * rounds_of_others(plan, of);
}

}  // namespace

void recompute(const Network& network, Recompute what, Plan& plan, std::int32_t every) {
  for (LayerPlan& layer : plan.layers) layer.recompute = false;
  if (what == Recompute::selective) lowering::recompute_attention(network, plan);
  if (what == Recompute::pointwise) recompute_pointwise(network, plan);
  if (what == Recompute::op) recompute_operations(network, plan);
  if (what == Recompute::full) recompute_blocks(network, plan);
  if (what == Recompute::optimal) lowering::recompute_segments(network, plan);
  if (what != Recompute::optimal && every > 1) keep_other_blocks(network, every, plan);
  exchange_again(network, what == Recompute::full || what == Recompute::optimal, plan);
}

Plan with_memory_options(const StrategyInput& input, Plan plan) {
  if (input.zero_stage) {
    const bool gathered = !plan.layers.empty() && plan.layers[0].zero.stage == 3;
    const bool refused = *input.zero_stage == 0 || zero_group_refusal(input, plan).has_value();
    for (LayerPlan& layer : plan.layers) {
      layer.zero = {*input.zero_stage, {}, refused ? ZeroGroup{} : input.zero_group};
    }
    const bool changes = gathered != (*input.zero_stage == 3);
    if (changes && !plan.buckets.empty() && gathers_blocks(input)) {
      plan.buckets = gradient_buckets(input);
    }
  }
  if (input.recompute) recompute(input.network, *input.recompute, plan, input.recompute_every);
  return plan;
}

Plan without_memory_options(const Network& network, Plan plan) {
  for (LayerPlan& layer : plan.layers) layer.zero = {};
  recompute(network, Recompute::none, plan);
  return plan;
}

Plan plan_of(const StrategyInput& input, const Strategy& strategy) {
  const auto known = std::find_if(input.known.begin(), input.known.end(),
                                  [&](const Plan& plan) { return plan.strategy == strategy.name; });
  if (known != input.known.end()) {
    // Also of a plan whose stage of ZeRO is not this input's (`fsdp` in a comparison).
    return with_buckets(input, without_memory_options(input.network, *known), input.bucket);
  }
  StrategyInput alone = input;
  alone.progress = {};
  return without_memory_options(input.network, strategy.plan(alone));
}

void check_zero_group(const StrategyInput& input, const Plan& plan, std::string_view where) {
  const auto refusal = zero_group_refusal(input, plan);
  if (!refusal) return;
  const auto& [parameter, what] = *refusal;
  throw InputError(where,
                   fmt::format("parameter '{}': {}", input.network[parameter].name, what.found),
                   "accepted: " + what.accepted);
}

namespace {

/// "within groups of 4", if several groups shard the same; nothing for one group.
std::string zero_group_note(const std::set<std::size_t>& sizes) {
  if (sizes.empty()) return {};
  const std::string least = fmt::format("{}", *sizes.begin());
  return " within groups of " +
         (sizes.size() == 1 ? least : fmt::format("{} to {}", least, *sizes.rbegin()));
}

/// Whether devices that have a parameter for different layers differ in number.
bool shares_unequally(const std::vector<std::vector<DeviceId>>& apart) {
  return std::any_of(apart.begin(), apart.end(),
                     [&](const auto& part) { return part.size() != apart[0].size(); });
}

/// Which states ZeRO shards, and for which part of the parameters.
std::string zero_note(const Network& network, const Cluster& cluster, const Plan& plan) {
  std::int32_t stage = 0;
  for (const LayerPlan& layer : plan.layers) stage = std::max(stage, layer.zero.stage);
  if (stage == 0) return {};
  double whole = 0, split = 0;
  bool replicas = false, tied = false;
  std::set<std::size_t> sizes;  // of groups, where there are several
  for (const lowering::SyncGroup& group : lowering::sync_groups(network, cluster, plan)) {
    replicas = replicas || group.devices.size() > 1;
    tied = tied || (group.zero_stage == 0 && shares_unequally(group.apart));
    if (group.zero_groups.size() > 1 && group.apart.empty())
      sizes.insert(group.zero_groups[0].size());
    for (const auto& [parameter, region] : group.contents) {
      (group.zero_stage > 0 ? split : whole) += static_cast<double>(region.volume());
    }
  }
  if (split == 0) {
    const bool grouped = replicas && !plan.layers[0].zero.group.all();
    return fmt::format("zero: nothing is sharded, because {}",
                       grouped ? "ZeRO groups have one device" : "no weight has replicas");
  }
  std::vector<std::string> what;
  const bool master = element_bytes(plan.precision) < 4;
  if (plan.optimizer != Optimizer::sgd || master) what.emplace_back("optimizer states");
  const bool scatters = lowering::scatters_each_micro_batch(plan.schedule);
  const std::vector<std::int32_t>& of_layer = plan.schedule.stage_of_layer;
  const bool several_stages =
      std::adjacent_find(of_layer.begin(), of_layer.end(), std::not_equal_to<>()) != of_layer.end();
  if (stage >= 2 && scatters) what.emplace_back("gradients");
  if (stage == 3) what.emplace_back("weights");
  std::string note = what.empty()
                         ? std::string("zero: replicas shard updates; sgd has no optimizer states")
                         : fmt::format("zero: replicas shard {}", join(what));
  note += zero_group_note(sizes);
  if (stage >= 2 && !scatters) {
    const bool once = plan.schedule.reduce_every == ReduceEvery::step && !several_stages;
    note += fmt::format(
        "; gradients are not sharded, because {}",
        once ? "they are reduced once a step" : "a pipeline's micro-batches accumulate in them");
  }
  if (whole > 0) {
    note += fmt::format("; applies to {:.3g} % of the weights, the others {}",
                        100 * split / (split + whole),
                        tied ? "have no replicas, or are tied between stages with unlike numbers "
                               "of replicas and stay whole"
                             : "have no replicas");
  }
  return note;
}

}  // namespace

Plan with_buckets(StrategyInput input, Plan plan, std::optional<Bytes> bucket) {
  input.bucket = bucket;
  input.reduce_precision = plan.reduce_precision;  // which a plan may have of its own
  plan.buckets = gradient_buckets(input);
  return plan;
}

std::vector<std::string> memory_option_notes(const Network& network, const Cluster& cluster,
                                             const Plan& plan) {
  std::vector<std::string> notes;
  if (std::string note = zero_note(network, cluster, plan); !note.empty()) {
    notes.push_back(std::move(note));
  }
  const std::vector<bool> dropped = lowering::dropped_outputs(network, plan);
  const auto count = std::count(dropped.begin(), dropped.end(), true);
  if (count > 0) {
    notes.push_back(fmt::format("recompute: {} of {} layers are recomputed in the backward pass",
                                count, dropped.size()));
  }
  return notes;
}

std::vector<lowering::MemoryUse> memory_use(const StrategyInput& input, const Plan& plan) {
  const auto use = [&](const Plan& all) {
    const std::optional<Extract> of = extract_of(all);
    Plan some = of ? lowering::shortened(all, of->more) : Plan{};
    if (input.as_run) some = input.as_run(of ? some : all);
    const Plan& whole = of || input.as_run ? some : all;
    return input.prices != nullptr ? input.prices->memory(whole)
                                   : lowering::memory_use(input.network, input.cluster, whole);
  };
  if (leaves_memory_alone(input, plan)) return use(plan);
  return use(with_memory_options(input, plan));
}

std::int32_t overcommit(const StrategyInput& input, const Plan& plan) {
  if (zero_group_refusal(input, plan)) return unusable;
  return overcommit(input, memory_use(input, plan));
}

std::int32_t overcommit(const StrategyInput& input, const std::vector<lowering::MemoryUse>& uses) {
  std::int32_t most = 0;
  for (std::size_t i = 0; i < uses.size(); ++i) {
    const std::int64_t needed = uses[i].total().value;
    const std::int64_t usable = std::max<std::int64_t>(1, input.usable_memory(DeviceId{i}).value);
    if (needed <= usable) continue;
    const double times = static_cast<double>(needed) / static_cast<double>(usable);
    most = std::max(most, std::max(1, static_cast<std::int32_t>(std::ceil(std::log2(times)))));
  }
  return most;
}

Seconds estimated_step(lowering::Estimator& estimator, const Plan& plan, Seconds limit) {
  const std::optional<Extract> of = extract_of(plan);
  if (!of) return estimator.step_time(plan, limit);
  const Seconds longer = estimator.step_time(lowering::shortened(plan, of->more), limit);
  if (longer >= limit) return longer;
  const Seconds shorter = estimator.step_time(lowering::shortened(plan, of->few));
  return extrapolated(plan, *of, shorter, longer);
}

Seconds estimated_below(lowering::Estimator& estimator, const Plan& plan, Seconds limit) {
  constexpr double rounding = 1e-9;
  const std::optional<Extract> of = extract_of(plan);
  if (!of) return estimator.step_time(plan, limit);
  const Seconds shorter = estimator.step_time(lowering::shortened(plan, of->few), limit);
  if (shorter >= limit) return shorter;
  // extrapolated() is the limit where the longer one takes as long as this.
  const double more = rounds_of_others(plan, *of);
  const Seconds most = (1 + rounding) / (1 + more) * (limit + more * shorter);
  const Seconds longer = estimator.step_time(lowering::shortened(plan, of->more), most);
  const Seconds step = extrapolated(plan, *of, shorter, longer);
  return longer >= most ? std::max(step, limit) : step;
}

std::vector<lowering::MemoryUse> estimated_memory(lowering::Estimator& estimator,
                                                  const Plan& plan) {
  const std::optional<Extract> of = extract_of(plan);
  return of ? estimator.memory(lowering::shortened(plan, of->more)) : estimator.memory(plan);
}

Price estimated_price(const StrategyInput& input, lowering::Estimator& estimator, const Plan& plan,
                      const Price& limit) {
  const bool options = !leaves_memory_alone(input, plan);
  const Plan saving = options ? with_memory_options(input, plan) : Plan{};
  const Plan& priced = options ? saving : plan;
  if (options && lacks_zero_group(input, saving)) return {unusable, limit.step};
  if (limit.fits()) {
    const Seconds step = estimated_below(estimator, priced, limit.step);
    return {step >= limit.step ? limit.overcommit
                               : overcommit(input, estimated_memory(estimator, priced)),
            step};
  }
  // What needs much more memory is not better, however fast it is.
  const std::int32_t most = overcommit(input, estimated_memory(estimator, priced));
  if (most > limit.overcommit) return {most, limit.step};
  return {most,
          estimated_below(estimator, priced,
                          most == limit.overcommit ? limit.step : lowering::Estimator::unlimited)};
}

bool fits(const StrategyInput& input, const Plan& plan) { return overcommit(input, plan) == 0; }

std::function<Seconds(const Plan&)> simulation(const Network& network, const Cluster& cluster,
                                               const CostModel& cost, Executor& executor) {
  const auto runs = std::make_shared<lowering::FoldedRuns>(network, cluster, cost);
  return
      [runs, &executor](const Plan& plan) { return makespan(runs->run(plan, executor).timeline); };
}

Seconds simulated_step(const StrategyInput& input, const Plan& plan, std::size_t exactly) {
  ensure(input.simulate != nullptr, "a plan is priced without a simulator");
  const std::optional<Extract> of = extract_of(plan, exactly);
  if (!of) return input.simulate(plan);
  const Seconds shorter = input.simulate(lowering::shortened(plan, of->few));
  return extrapolated(plan, *of, shorter, input.simulate(lowering::shortened(plan, of->more)));
}

Price simulated_price(const StrategyInput& input, const Plan& plan) {
  const Plan priced = with_memory_options(input, plan);
  const Seconds step = simulated_step(input, priced);
  return {lacks_zero_group(input, priced) ? unusable : overcommit(input, priced), step};
}

namespace {

/// Indices, ascending, of the plans that may be the best by simulation. A plan whose estimate is
/// far behind is left out: it is often one that exchanges much between all devices, which takes
/// longer to simulate than all the others.
std::vector<std::size_t> promising_by_estimate(const StrategyInput& input,
                                               std::span<const Plan> plans) {
  lowering::Estimator estimator(input.step());
  const auto worth = [](const Price& price) {
    return Price{price.overcommit, worth_simulating * price.step};
  };
  std::vector<Price> prices;
  Price best;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    prices.push_back(i == 0 ? estimated_price(input, estimator, plans[i])
                            : estimated_price(input, estimator, plans[i], worth(best)));
    if (i == 0 || prices.back().better_than(best)) best = prices.back();
  }
  std::vector<std::size_t> promising;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    if (!worth(best).better_than(prices[i])) promising.push_back(i);
  }
  return promising;
}

}  // namespace

std::size_t best_by_simulation(const StrategyInput& input, std::span<const Plan> plans) {
  ensure(!plans.empty(), "no plan to choose from");
  if (plans.size() == 1) return 0;
  if (!input.simulate) {
    for (std::size_t i = 0; i < plans.size(); ++i) {
      if (fits(input, plans[i])) return i;
    }
    return 0;
  }
  const std::vector<std::size_t> promising = promising_by_estimate(input, plans);
  std::size_t best = promising[0];
  Price least;
  for (const std::size_t i : promising) {
    const Price price = simulated_price(input, plans[i]);
    if (i == promising[0] || price.better_than(least)) {
      best = i;
      least = price;
    }
  }
  return best;
}

bool are_many_layers(const StrategyInput& input) {
  constexpr std::size_t few = 20'000;  // layers x devices
  return input.network.layers.size() * workers(input).size() > few;
}

}  // namespace parsim::strategies
