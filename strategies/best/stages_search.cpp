#include <algorithm>
#include <utility>

#include "strategies/best/candidates.hpp"
#include "strategies/mixed_stages.hpp"
#include "strategies/out_of_time.hpp"

namespace parsim::strategies {

std::vector<PricedPlan> candidates_of_mixed_stages(const StrategyInput& input,
                                                   lowering::Estimator& estimator,
                                                   const Price& limit) {
  if ((input.zero_stage && input.schedule) || !has_mixed_stages(input)) return {};
  constexpr std::size_t finalists = 6;
  StrategyInput asked = input;
  asked.simulate = {};
  if (!asked.zero_stage) asked.zero_stage = 1;  // more of ZeRO sends more
  const std::vector<MixedStages> layouts = mixed_stages(asked);
  std::vector<PipelineSchedule> schedules{PipelineSchedule::one_f_one_b,
                                          PipelineSchedule::zero_bubble};
  if (input.schedule) schedules = {*input.schedule};
  MemorySearch memory(input, estimator);
  std::vector<PricedPlan> candidates;
  Price useful = limit;
  try {
    for (const PipelineSchedule schedule : schedules) {
      asked.schedule = schedule;
      for (Plan& plan : mixed_plans(asked, estimator, finalists, layouts)) {
        if (!input.schedule) plan = in_order(std::move(plan), PipelineSchedule::one_f_one_b);
        for (PricedPlan& one : memory.variants(plan, "mixed stages", useful)) {
          if (one.price.fits()) {
            useful = {0, std::min(useful.fits() ? useful.step : lowering::Estimator::unlimited,
                                  worth_simulating * one.price.step)};
          }
          candidates.push_back(std::move(one));
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
