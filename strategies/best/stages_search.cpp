#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/errors.hpp"
#include "strategies/best/candidates.hpp"
#include "strategies/mixed_stages.hpp"
#include "strategies/out_of_time.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/stages.hpp"

namespace parsim::strategies {

namespace {

/// Plans of a layout with each of the options, those that change nothing left out, and those that
/// it cannot have: devices that share layers unequally overlap no tokens.
std::vector<Plan> in_groups(const StrategyInput& input, const std::vector<GroupOptions>& groups,
                            const MixedStages& stages) {
  std::vector<Plan> plans;
  for (const GroupOptions& options : groups) {
    std::optional<Plan> plan;
    try {
      plan = plan_of_stages(with_groups(input, options), stages);
    } catch (const InputError&) {
      continue;
    }
    const auto same = std::find_if(plans.begin(), plans.end(),
                                   [&](const Plan& other) { return other.layers == plan->layers; });
    if (same == plans.end()) {
      plans.push_back(std::move(*plan));
    } else {
      *same = std::move(*plan);  // it has no note on what an option does not change
    }
  }
  return plans;
}

}  // namespace

std::vector<PricedPlan> candidates_of_mixed_stages(const StrategyInput& input,
                                                   lowering::Estimator& estimator,
                                                   const Price& limit) {
  if (!has_mixed_stages(input)) return {};
  // Where simulations take long, estimates must do, which take long, too: of fewer plans.
  constexpr std::size_t most = 100'000;  // layers x devices
  const bool large = input.network.layers.size() * workers(input).size() > most;
  const std::size_t finalists = large ? 2 : 6;
  std::vector<PipelineSchedule> schedules{PipelineSchedule::one_f_one_b,
                                          PipelineSchedule::zero_bubble};
  if (!large) schedules.push_back(PipelineSchedule::zero_bubble_h2);
  if (input.schedule) schedules = {*input.schedule};
  const std::vector<GroupOptions> groups = group_options(input);
  // Tokens in parts, but no chunks of products: what these hide the closed form knows too little
  // of.
  StrategyInput asked =
      with_groups(input, {groups.front().sequence_parallel, input.tensor_overlap});
  if (large) asked.simulate = {};
  const bool served = input.sync == Sync::Kind::server;    // which has the states alone
  if (!asked.zero_stage && !served) asked.zero_stage = 1;  // more of ZeRO sends more
  std::vector<PricedPlan> candidates;
  Price useful = limit;
  try {
    for (const PipelineSchedule schedule : schedules) {
      asked.schedule = schedule;
      StrategyInput ordered = input;
      ordered.schedule = schedule;
      MemorySearch memory(ordered, estimator);
      const bool named = !input.schedule && is_zero_bubble(schedule);
      for (const MixedStages& one : best_stages(asked, estimator, finalists, mixed_stages(asked))) {
        for (const Plan& plan : in_groups(asked, groups, one)) {
          for (PricedPlan& variant : memory.variants(
                   plan,
                   named ? fmt::format("mixed stages, {}", to_text(schedule)) : "mixed stages",
                   useful)) {
            if (variant.price.fits()) {
              useful = {0, std::min(useful.fits() ? useful.step : lowering::Estimator::unlimited,
                                    worth_simulating * variant.price.step)};
            }
            variant.schedule = schedule;
            candidates.push_back(std::move(variant));
          }
        }
      }
    }
  } catch (const OutOfTime&) {  // those so far
  }
  sort_by_price(candidates);
  if (candidates.size() > finalists) candidates.resize(finalists);
  return candidates;
}

}  // namespace parsim::strategies
