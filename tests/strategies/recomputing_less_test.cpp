// Recomputation in no more blocks of a pipeline than devices need.
#include "strategies/best/recomputing_less.hpp"

#include <doctest/doctest.h>

#include <array>

#include "lowering/estimate.hpp"
#include "strategies/best/candidates.hpp"
#include "strategies/price.hpp"
#include "tests/support/world.hpp"

namespace parsim::strategies {
namespace {

constexpr std::array rules{Recompute::none, Recompute::pointwise};

std::int64_t recomputed(const Plan& plan, std::int32_t stage) {
  std::int64_t layers = 0;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    if (plan.schedule.stage_of_layer[l] == stage && plan.layers[l].recompute) ++layers;
  }
  return layers;
}

}  // namespace

// 1F1B's first stage has four micro-batches in flight, the last one.
TEST_CASE("recomputing less: the stages and blocks that lack memory, and no others") {
  World world("gpt:layers=16,hidden=256,heads=4,seq_length=256,vocab_size=512",
              "star:4,device=a100-sxm4-80,rate=25GB/s,latency=5us");
  StrategyInput input = world.simulated(16);
  input.tensor_parallel = input.data_parallel = 1;
  input.pipeline_parallel = 4;
  input.micro_batches = 16;
  const Plan plain = plan_tensor(input);
  Plan full = plain;
  recompute(input.network, Recompute::pointwise, full);
  lowering::Estimator estimator(input.step());
  const auto needs = [&](const Plan& plan, std::size_t device) {
    return estimator.memory(plan)[device].total().value;
  };
  const auto give = [&](std::int64_t bytes) {
    for (Device& device : world.cluster.devices) device.memory = Bytes{bytes};
  };
  const std::int64_t most = needs(plain, 0), second = needs(plain, 1), least = needs(full, 0);
  REQUIRE(least < most);
  REQUIRE(second < most);

  give(most);  // enough
  Plan less = recomputing_less(input, estimator, full, rules);
  CHECK(less.layers == plain.layers);

  give((std::max(least, second) + most) / 2);  // too little for the first stage alone
  less = recomputing_less(input, estimator, full, rules);
  CHECK(fits(input, less));
  CHECK(recomputed(less, 0) > 0);
  CHECK(recomputed(less, 0) < recomputed(full, 0));
  for (const std::int32_t stage : {1, 2, 3}) CHECK(recomputed(less, stage) == 0);
  CHECK(simulated_price(input, less).step < simulated_price(input, full).step);
  // One block less would be too much.
  const std::int64_t of_block = recomputed(full, 0) / 4;
  Plan too_little = less;
  std::int64_t left = of_block;
  for (std::size_t l = less.layers.size(); l-- > 0;) {
    if (left == 0 || !too_little.layers[l].recompute) continue;
    too_little.layers[l].recompute = false;
    --left;
  }
  CHECK_FALSE(fits(input, too_little));

  // best has it, and with a rule of the user's the rule alone.
  input.budget = 1;
  const Price found = simulated_price(input, plan_best(input));
  CHECK_FALSE(simulated_price(input, less).better_than(found));
  input.recompute = Recompute::pointwise;
  const MemorySearch asked(input, estimator);
  CHECK(asked.with_less_recompute(full, Recompute::pointwise).layers == full.layers);
}

}  // namespace parsim::strategies
