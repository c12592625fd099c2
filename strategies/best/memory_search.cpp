#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

#include "lowering/recompute.hpp"
#include "lowering/zero_schedule.hpp"
#include "strategies/best/candidates.hpp"
#include "strategies/best/recomputing_less.hpp"
#include "strategies/blocks.hpp"
#include "strategies/buckets.hpp"
#include "strategies/degrees.hpp"
#include "strategies/estimated_below.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/stages.hpp"

namespace parsim::strategies {

namespace {

/// Whether a weight is on several machines: else groups of ZeRO end at machines anyway. Layers may
/// share a weight.
bool spans_machines(const Network& network, const Cluster& cluster, const Plan& plan) {
  std::vector<NodeId> machines(network.parameters.size());
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    for (const ParameterId weight : network.layers[l].parameters) {
      NodeId& machine = machines[weight.index()];
      for (const DeviceId device : plan.layers[l].devices) {
        const NodeId node = cluster[device].node;
        if (!machine.valid()) machine = node;
        if (machine != node) return true;
      }
    }
  }
  return false;
}

}  // namespace

bool has_replicas(const Network& network, const Plan& plan) {
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    if (network.layers[l].parameters.empty()) continue;
    for (const Cut& cut : plan.layers[l].cuts) {
      const bool splits_weights = cut.dim == Dim::channel || cut.dim == Dim::in_channel ||
                                  cut.dim == Dim::head || cut.dim == Dim::expert;
      if (!splits_weights && cut.sizes.size() > 1) return true;
    }
  }
  return false;
}

std::string MemoryOptions::text() const {
  std::string text;
  if (zero_stage > 0) text += fmt::format(", zero {}", zero_stage);
  if (sized) text += ", bucket " + bucket_text(ddp_bucket);
  if (zero_stage > 0 && zero_group.node) text += " within machines";
  if (zero_stage > 0 && zero_group.ranks > 0) {
    text += fmt::format(" within groups of {}", zero_group.ranks);
  }
  if (recompute != Recompute::none) text += fmt::format(", recompute {}", to_text(recompute));
  return text;
}

bool accepted(const StrategyInput& input, const Plan& plan) {
  return !input.accepts || input.accepts(plan);
}

bool asks_for_degrees(const StrategyInput& input) {
  return input.tensor_parallel || input.pipeline_parallel || input.data_parallel ||
         input.context_parallel || input.expert_parallel || input.expert_tensor_parallel ||
         input.virtual_pipeline > 1 || input.micro_batches;
}

bool keeps_degrees(const StrategyInput& input, const Plan& plan) {
  if (!asks_for_degrees(input)) return true;
  const Degrees degrees = degrees_of(input.network, plan);
  const auto keeps = [](const std::optional<std::int32_t>& asked,
                        const std::optional<std::int64_t>& has) {
    return !asked || has == std::int64_t{*asked};
  };
  return keeps(input.tensor_parallel, degrees.tp) && keeps(input.pipeline_parallel, degrees.pp) &&
         keeps(input.data_parallel, degrees.dp) && keeps(input.context_parallel, degrees.cp) &&
         keeps(input.expert_parallel, degrees.ep) &&
         keeps(input.expert_tensor_parallel, degrees.etp) &&
         (input.virtual_pipeline == 1 || degrees.vp == std::int64_t{input.virtual_pipeline}) &&
         plan.schedule.micro_batches == input.micro_batches.value_or(plan.schedule.micro_batches);
}

bool same_plan(const Plan& a, const Plan& b) {
  return a.layers == b.layers && a.schedule == b.schedule && a.buckets == b.buckets;
}

void sort_by_price(std::vector<PricedPlan>& candidates) {
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [](const PricedPlan& a, const PricedPlan& b) { return a.price.better_than(b.price); });
}

StrategyInput as_planned(const StrategyInput& input) {
  StrategyInput plain = input;
  plain.zero_stage = {};
  plain.zero_group = {};
  plain.recompute = {};
  return plain;
}

StrategyInput with_options(const StrategyInput& input, const MemoryOptions& memory) {
  StrategyInput asked = input;
  asked.zero_stage = memory.zero_stage;
  asked.zero_group = memory.zero_group;
  asked.recompute = memory.recompute;
  if (memory.sized) asked.bucket = ddp_bucket;
  return asked;
}

Plan in_order(Plan plan, PipelineSchedule schedule) {
  std::optional<Plan> other = reordered(plan, schedule);
  return other ? *std::move(other) : std::move(plan);
}

MemorySearch::MemorySearch(const StrategyInput& input, lowering::Estimator& estimator)
    : input_(input),
      plain_(as_planned(input)),
      estimator_(estimator),
      boundary_(boundary_bytes(input.network, input.precision)) {
  if (input.recompute) {
    recomputes_ = {*input.recompute};
    return;
  }
  const bool blocks = !first_layers_of_blocks(input.network).empty();
  recomputes_ = {Recompute::none};
  if (blocks) recomputes_.push_back(Recompute::pointwise);
  if (!lowering::attention_scores(input.network).empty()) {
    recomputes_.push_back(Recompute::selective);
  }
  if (blocks) recomputes_.insert(recomputes_.end(), {Recompute::op, Recompute::full});
  recomputes_.push_back(Recompute::optimal);
}

std::vector<MemoryOptions> MemorySearch::shardings(const Plan& plan) const {
  if (input_.zero_stage && *input_.zero_stage == 0) return {{}};
  const bool served = input_.sync == Sync::Kind::server;
  if (!input_.zero_stage && (served || !has_replicas(input_.network, plan))) return {{}};
  const bool scatters = lowering::scatters_each_micro_batch(plan.schedule);
  const bool several_machines = spans_machines(input_.network, input_.cluster, plan);
  const bool may_be_sized = may_size_buckets(input_);
  std::vector<MemoryOptions> shardings;
  const auto add = [&](std::int32_t stage, const ZeroGroup& group) {
    shardings.push_back({stage, group, {}});
    if (stage == 3 && may_be_sized) shardings.push_back({stage, group, {}, true});
  };
  for (const std::int32_t stage : {0, 1, 2, 3}) {
    // Without sums of each micro-batch 2 is 1, which some trainers do not have.
    const bool same_as_1 = stage == 2 && !scatters && !input_.accepts;
    if (input_.zero_stage ? stage != *input_.zero_stage : same_as_1) continue;
    add(stage, input_.zero_group);
    if (stage > 0 && several_machines && input_.zero_group.all()) add(stage, {0, true});
  }
  return shardings;
}

bool MemorySearch::may_be_accepted(const Plan& plan) const {
  if (!input_.accepts) return true;
  const std::vector<MemoryOptions> all = shardings(plan);
  return std::any_of(all.begin(), all.end(), [&](MemoryOptions sharding) {
    sharding.recompute = recomputes_.front();
    return accepted(input_, with_memory_options(with_options(input_, sharding), plan));
  });
}

bool MemorySearch::may_fit(const Plan& plan) const {
  std::vector<MemoryOptions> all = shardings(plan);
  std::reverse(all.begin(), all.end());  // those that save most
  return std::any_of(all.begin(), all.end(), [&](MemoryOptions options) {
    const std::size_t rules = recomputes_.size();
    for (std::size_t r = rules - std::min<std::size_t>(rules, 2); r < rules; ++r) {
      options.recompute = recomputes_[r];
      const auto uses =
          estimated_memory(estimator_, with_memory_options(with_options(input_, options), plan));
      if (overcommit(plain_, uses) == 0 || suffices_in_all(uses)) return true;
    }
    return false;
  });
}

bool MemorySearch::suffices_in_all(const std::vector<lowering::MemoryUse>& uses) const {
  double needed = 0, usable = 0;
  for (std::size_t d = 0; d < uses.size(); ++d) {
    if (uses[d].total().value == 0) continue;
    needed += static_cast<double>(uses[d].total().value);
    usable += static_cast<double>(plain_.usable_memory(DeviceId{d}).value);
  }
  return needed <= usable;
}

Plan MemorySearch::with_less_recompute(Plan plan, Recompute rule) const {
  if (input_.recompute || input_.accepts) return plan;  // trainers have one rule for all blocks
  const auto end = std::find(recomputes_.begin(), recomputes_.end(), rule) + 1;
  return recomputing_less(plain_, estimator_, plan, {recomputes_.begin(), end});
}

std::span<const Recompute> MemorySearch::rules_with(Recompute rule) const {
  const auto at = [&](Recompute one) {
    return static_cast<std::size_t>(std::find(recomputes_.begin(), recomputes_.end(), one) -
                                    recomputes_.begin());
  };
  const std::span<const Recompute> all(recomputes_);
  if (input_.recompute || input_.accepts) return all.subspan(std::min(at(rule), all.size() - 1), 1);
  return all.first(std::min(all.size(), std::max(at(rule), at(Recompute::full)) + 1));
}

void MemorySearch::add_variants(const Plan& plan, const PricedPlan& like, const Price& limit,
                                Seconds reach, std::vector<PricedPlan>& fitting,
                                std::optional<PricedPlan>& unfit, std::vector<PricedPlan>* over,
                                bool* near) {
  const Seconds most = limit.fits() ? limit.step : lowering::Estimator::unlimited;
  std::map<bool, bool> known;  // by whether groups are those of machines: the same for all stages
  const auto has_groups = [&](const MemoryOptions& sharding) {
    if (sharding.zero_stage == 0 || sharding.zero_group.all()) return true;
    const auto [at, fresh] = known.try_emplace(sharding.zero_group.node, false);
    if (fresh) {
      const Plan sharded = with_memory_options(with_options(input_, sharding), plan);
      at->second = sharded.layers[0].zero.group == sharding.zero_group;
    }
    return at->second;
  };
  // By rule, which layers it marks: the same however states are sharded.
  struct Marks {
    bool recompute = false, regather = false;
  };
  std::vector<std::vector<Marks>> marked(recomputes_.size());
  std::vector<Plan> untimed;
  const bool by_block = gathers_blocks(input_);
  bool whole_blocks_fit = true;  // with the least recomputation
  for (const MemoryOptions& sharding : shardings(plan)) {
    if (!has_groups(sharding) || (sharding.sized && whole_blocks_fit)) continue;
    Plan sharded = plan;
    for (LayerPlan& layer : sharded.layers) {
      layer.zero = {sharding.zero_stage, {}, sharding.zero_group};
      layer.recompute = false;
    }
    if (sharding.zero_stage == 3 && by_block) {
      sharded.buckets = gradient_buckets(with_options(input_, sharding));
    }
    std::optional<Seconds> least;  // with the least recomputation
    std::optional<Plan> with_least;
    const auto least_step = [&] {
      // Once it is known that the plan is near no more than the limit matters.
      const bool known_near = near == nullptr || *near;
      if (!least) least = estimated_below(estimator_, *with_least, known_near ? most : reach);
      return *least;
    };
    for (std::size_t r = 0; r < recomputes_.size(); ++r) {
      const Recompute rule = recomputes_[r];
      PricedPlan one = like;
      one.memory = sharding;
      one.memory.recompute = rule;
      one.plan = sharded;
      if (marked[r].empty()) {
        recompute(input_.network, rule, one.plan, input_.recompute_every);
        for (const LayerPlan& layer : one.plan.layers) {
          marked[r].push_back({layer.recompute, layer.regather});
        }
      }
      for (std::size_t l = 0; l < marked[r].size(); ++l) {
        one.plan.layers[l].recompute = marked[r][l].recompute;
        one.plan.layers[l].regather = marked[r][l].regather;
      }
      one.origin += one.memory.text();
      if (!with_least) with_least = one.plan;
      if (!accepted(input_, one.plan)) continue;
      const std::vector<lowering::MemoryUse> uses = estimated_memory(estimator_, one.plan);
      one.price.overcommit = overcommit(plain_, uses);
      if (r == 0) whole_blocks_fit = one.price.fits();
      const bool relievable = over != nullptr && !one.price.fits() && suffices_in_all(uses);
      // Walking through a step takes much longer than finding out that it does not fit.
      if (!one.price.fits() && !relievable && limit.fits()) continue;
      if (limit.fits() && least_step() >= most) break;  // and more so with more recomputation
      if (limit.fits()) one.price.step = least_step();
      if (relievable) over->push_back(one);
      if (one.price.fits()) {
        one.plan = with_less_recompute(std::move(one.plan), rule);
        one.price.step = estimated_below(estimator_, one.plan, most);
        if (one.price.step < most) fitting.push_back(std::move(one));
        if (rule != Recompute::full) break;
      } else if (!limit.fits() && fitting.empty() && one.price.overcommit <= limit.overcommit &&
                 (!unfit || one.price.overcommit < unfit->price.overcommit)) {
        unfit = std::move(one);
      }
    }
    if (near == nullptr || *near) continue;
    if (reach == lowering::Estimator::unlimited) *near = true;
    if (*near) continue;
    if (least) *near = *least < reach;
    if (!least) untimed.push_back(*std::move(with_least));
  }
  for (std::size_t i = 0; near != nullptr && !*near && i < untimed.size(); ++i) {
    *near = estimated_below(estimator_, untimed[i], reach) < reach;
  }
}

bool MemorySearch::waits_for_sends(const Plan& plan, Seconds step) const {
  // A stage of ZB-H1 has as many micro-batches in flight as there are stages from it on. With equal
  // ones it waits if a send takes more than a sixth of what a device does with a micro-batch.
  constexpr double enough = 1.0 / 8;
  const std::vector<Seconds> sends = send_times(input_, plan, boundary_);
  const Seconds period = step / plan.schedule.micro_batches;
  return std::any_of(sends.begin(), sends.end(),
                     [&](Seconds send) { return send > enough * period; });
}

std::vector<PricedPlan> MemorySearch::variants(
    const Plan& plan, const std::string& origin, const Price& limit, std::vector<PricedPlan>* over,
    const std::function<std::vector<Plan>(PipelineSchedule)>& ordered) {
  std::vector<PricedPlan> fitting;
  std::optional<PricedPlan> unfit;
  const Seconds most = limit.fits() ? limit.step : lowering::Estimator::unlimited;
  const bool splits = !input_.schedule && reordered(plan, PipelineSchedule::zero_bubble);
  const std::vector<std::int32_t>& of_layer = plan.schedule.stage_of_layer;
  const std::size_t devices = plan.schedule.rank_lists.size();
  const auto stages =
      static_cast<std::size_t>(1 + *std::max_element(of_layer.begin(), of_layer.end()));
  const double gain =
      splits ? zero_bubble_gain(devices, stages / devices, plan.schedule.micro_batches) : 1;
  PricedPlan like;
  like.origin = origin;
  like.schedule = input_.schedule_or_default();
  bool near = false;
  add_variants(plan, like, limit, most / gain, fitting, unfit, over, splits ? &near : nullptr);
  const auto add_in_order = [&](PipelineSchedule schedule) {
    like.schedule = schedule;
    like.origin = fmt::format("{}, {}", origin, to_text(schedule));
    const std::vector<Plan> plans =
        ordered ? ordered(schedule) : std::vector{*reordered(plan, schedule)};
    for (const Plan& one : plans) {
      add_variants(one, like, limit, most, fitting, unfit, over, nullptr);
    }
  };
  if (near) {
    add_in_order(PipelineSchedule::zero_bubble);
    Seconds least = most;
    for (const PricedPlan& one : fitting) least = std::min(least, one.price.step);
    if (waits_for_sends(plan, least)) add_in_order(PipelineSchedule::zero_bubble_h2);
  }
  if (fitting.empty() && unfit) {
    const bool as_tight = unfit->price.overcommit == limit.overcommit;
    unfit->price.step = estimated_step(estimator_, unfit->plan,
                                       as_tight ? limit.step : lowering::Estimator::unlimited);
    if (unfit->price.better_than(limit)) fitting.push_back(std::move(*unfit));
  }
  return fitting;
}

}  // namespace parsim::strategies
