// Borders between stages and recomputation, chosen together.
#include "strategies/best/joint_borders.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "lowering/estimate.hpp"
#include "strategies/blocks.hpp"
#include "strategies/move_borders.hpp"
#include "strategies/price.hpp"
#include "tests/support/world.hpp"

namespace parsim::strategies {
namespace {

using First = std::vector<std::size_t>;

/// Four stages of 1F1B on as many devices, or as many groups of two.
StrategyInput pipeline_input(const testing::World& world, std::int32_t tensor) {
  StrategyInput input = world.simulated(64);
  input.precision = Precision::bf16;
  input.optimizer = Optimizer::adam;
  input.tensor_parallel = tensor;
  input.data_parallel = 1;
  input.pipeline_parallel = 4;
  input.micro_batches = 16;
  input.schedule = PipelineSchedule::one_f_one_b;
  return input;
}

}  // namespace

TEST_CASE("joint borders: stages that recompute less take more blocks") {
  testing::World world("gpt:layers=32,hidden=512,heads=4,seq_length=2048,vocab_size=2048",
                       "star:4,device=a100-sxm4-80,rate=100GB/s,latency=5us");
  StrategyInput input = pipeline_input(world, 1);
  const Plan plain = plan_tensor(input);
  Plan full = plain;
  recompute(input.network, Recompute::full, full);
  lowering::Estimator estimator(input.step());
  const auto most = [&](const Plan& plan) { return estimator.memory(plan)[0].total().value; };
  // The first stage must recompute most of its blocks, the last one none.
  const std::int64_t memory = (3 * most(full) + most(plain)) / 4;
  for (Device& device : world.cluster.devices) device.memory = Bytes{memory};
  PricedPlan start;
  start.memory.recompute = Recompute::full;
  start.plan = MemorySearch(input, estimator).with_less_recompute(full, Recompute::full);
  start.price = estimated_price(as_planned(input), estimator, start.plan);
  REQUIRE(start.price.fits());
  const auto better = with_joint_borders(input, estimator, start);
  REQUIRE(better);
  CHECK(better->price.step < 0.98 * start.price.step);
  CHECK(fits(as_planned(input), better->plan));
  CHECK(better->price.step == estimated_step(estimator, better->plan));
  validate(better->plan, world.network, world.cluster, "test");
  // Nothing is left to gain in the same way.
  CHECK_FALSE(with_joint_borders(input, estimator, *better));
  // Nothing moves where the user's rule is the same for all stages, as trainers have it.
  StrategyInput asked = input;
  asked.recompute = Recompute::full;
  PricedPlan uniform = start;
  uniform.plan = full;
  uniform.price = estimated_price(as_planned(input), estimator, full);
  const auto moved = with_joint_borders(asked, estimator, uniform);
  if (moved) {
    Plan again = moved->plan;
    recompute(input.network, Recompute::full, again);
    CHECK(again.layers == moved->plan.layers);
  }
  // best has it.
  input.budget = 1;
  input.searches_chunks = false;
  CHECK_FALSE(simulated_price(as_planned(input), better->plan)
                  .better_than(simulated_price(input, plan_best(input))));
}

TEST_CASE("joint borders: of plans too large for move_borders, too") {
  const testing::World world("gpt:layers=32,hidden=256,heads=4,seq_length=256,vocab_size=512",
                             "star:64,device=a100-sxm4-80,rate=100GB/s,latency=5us");
  StrategyInput input = pipeline_input(world, 1);
  input.simulate = {};
  input.batch = 1024;
  input.data_parallel = 16;
  input.micro_batches = 64;
  const Plan plan = plan_tensor(input);
  const std::vector<std::size_t> units = units_of(world.network, {});
  First first = first_layers_of_stages(plan).value();
  for (const std::size_t s : {1, 2}) {
    first[s] = *(std::find(units.begin(), units.end(), first[s]) + 2);
  }
  lowering::Estimator estimator(input.step());
  PricedPlan start;
  start.plan = recut(world.network, units, plan, first).value();
  start.price = estimated_price(as_planned(input), estimator, start.plan);
  const auto make = [&](const First& other) {
    return recut(world.network, units, start.plan, other).value();
  };
  CHECK(move_borders(input, estimator, {first, start.plan}, make).first == first);
  const auto better = with_joint_borders(input, estimator, start);
  REQUIRE(better);
  CHECK(better->price.step < 0.9 * start.price.step);
  CHECK(better->price.step <= estimated_step(estimator, plan));
}

TEST_CASE("joint borders: units are divided as those of their new stage") {
  const testing::World world("gpt:layers=8,hidden=256,heads=4,seq_length=256,vocab_size=512",
                             "star:8,device=a100-sxm4-80,rate=25GB/s,latency=5us");
  const StrategyInput input = pipeline_input(world, 2);
  const Plan plan = plan_tensor(input);
  const std::vector<std::size_t> units = units_of(world.network, {});
  const std::optional<First> first = first_layers_of_stages(plan);
  REQUIRE(first);
  REQUIRE(first->size() == 4);
  CHECK(recut(world.network, units, plan, *first) == plan);
  for (const std::size_t s : {1, 2, 3}) {
    First other = *first;
    other[s] = *(std::find(units.begin(), units.end(), other[s]) - 1);
    const std::optional<Plan> moved = recut(world.network, units, plan, other);
    REQUIRE(moved);
    validate(*moved, world.network, world.cluster, "test");
    CHECK(first_layers_of_stages(*moved) == other);
    CHECK(moved->layers[other[s]].devices == plan.layers[(*first)[s]].devices);
    // There and back again.
    CHECK(recut(world.network, units, *moved, *first) == plan);
  }
  // What is after the blocks is like no unit of another stage.
  First end = *first;
  end[3] = world.network.layers.size();
  CHECK_FALSE(recut(world.network, units, plan, end));
  Plan looped = plan;
  looped.schedule.stage_of_layer.back() = 0;
  CHECK_FALSE(first_layers_of_stages(looped));
}

}  // namespace parsim::strategies
