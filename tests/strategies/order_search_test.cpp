// Orders of pipelines by the times and the memory of their stages.
#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "lowering/estimate.hpp"
#include "strategies/best/candidates.hpp"
#include "strategies/price.hpp"
#include "tests/support/world.hpp"

namespace parsim::strategies {
namespace {

/// A pipeline in ZB-H2's order as the only finalist.
std::vector<PricedPlan> finalists_of(StrategyInput input) {
  input.schedule = PipelineSchedule::zero_bubble_h2;
  PricedPlan one;
  one.plan = plan_tensor(input);
  one.price = simulated_price(input, one.plan);
  one.schedule = *input.schedule;
  return {one};
}

/// Forward slots before the first other one.
std::ptrdiff_t warm_up(const Plan& plan, std::size_t list) {
  const std::vector<Slot>& slots = plan.schedule.rank_lists[list].slots;
  return std::find_if(slots.begin(), slots.end(),
                      [](const Slot& slot) { return slot.direction != Direction::forward; }) -
         slots.begin();
}

StrategyInput of_four_stages(const testing::World& world) {
  StrategyInput input = world.simulated(16);
  input.tensor_parallel = input.data_parallel = 1;
  input.pipeline_parallel = 4;
  input.micro_batches = 16;
  return input;
}

}  // namespace

TEST_CASE("orders by time: with memory to spare and slow sends faster than ZB-H2") {
  testing::World world("gpt:layers=16,hidden=1024,heads=8,seq_length=512,vocab_size=512",
                       "star:4,device=rtx-3090*2+a100-pcie-40*2,rate=1GB/s,latency=5us");
  const StrategyInput input = of_four_stages(world);
  lowering::Estimator estimator(input.step());
  std::vector<PricedPlan> finalists = finalists_of(input);
  const PricedPlan fixed = finalists[0];
  add_orders_by_time(input, estimator, finalists);
  REQUIRE(finalists.size() == 2);
  const PricedPlan& found = finalists[0];
  CHECK(found.plan.layers == fixed.plan.layers);
  CHECK(fits(input, found.plan));
  CHECK(warm_up(found.plan, 0) > warm_up(fixed.plan, 0));
  CHECK(found.price.step < 0.98 * fixed.price.step);
  CHECK(simulated_price(input, found.plan).step == found.price.step);
  // The same again, and none where the order was asked for.
  std::vector<PricedPlan> again{fixed};
  add_orders_by_time(input, estimator, again);
  CHECK(same_plan(again[0].plan, found.plan));
  StrategyInput asked = input;
  asked.schedule = PipelineSchedule::zero_bubble_h2;
  again = {fixed};
  add_orders_by_time(asked, estimator, again);
  CHECK(again.size() == 1);
  // best has it.
  StrategyInput searched = input;
  searched.budget = 1;
  searched.searches_chunks = false;
  CHECK_FALSE(found.price.better_than(simulated_price(input, plan_best(searched))));
}

TEST_CASE("orders by time: as many micro-batches in flight as fit") {
  testing::World world("gpt:layers=16,hidden=1024,heads=8,seq_length=512,vocab_size=512",
                       "star:4,device=rtx-3090*2+a100-pcie-40*2,rate=1GB/s,latency=5us");
  const StrategyInput input = of_four_stages(world);
  std::vector<PricedPlan> finalists = finalists_of(input);
  const PricedPlan fixed = finalists[0];
  lowering::Estimator estimator(input.step());
  const auto give = [&](const Plan& plan) {
    const std::vector<lowering::MemoryUse> uses = estimator.memory(plan);
    for (std::size_t d = 0; d < uses.size(); ++d) {
      world.cluster.devices[d].memory = uses[d].total();
    }
  };
  add_orders_by_time(input, estimator, finalists);
  const Plan free = finalists[0].plan;
  give(fixed.plan);
  REQUIRE_FALSE(fits(input, free));
  finalists = {fixed};
  add_orders_by_time(input, estimator, finalists);
  CHECK(fits(input, finalists[0].plan));
  give(free);
  finalists = {fixed};
  add_orders_by_time(input, estimator, finalists);
  CHECK(finalists.size() == 2);
  CHECK(fits(input, finalists[0].plan));
}

}  // namespace parsim::strategies
