#include "strategies/move_borders.hpp"

#include <doctest/doctest.h>

#include "tests/support/world.hpp"

using namespace parsim;
using namespace parsim::strategies;
using testing::World;

TEST_CASE("move borders: no stage is left with the inputs alone") {
  // Over so slow a link the step is shortest if nothing crosses: with all kernels in one stage.
  const World world("lenet5", "star:2,device=v100-sxm2,rate=1MB/s");
  StrategyInput input = world.simulated(16);
  input.pipeline_parallel = 2;
  input.micro_batches = 1;
  const Plan pipeline = plan_pipeline(input);
  const auto make = [&](const std::vector<std::size_t>& first) {
    Plan plan = pipeline;
    for (std::size_t l = 0; l < plan.layers.size(); ++l) {
      const std::size_t stage = l < first.at(1) ? 0 : 1;
      plan.schedule.stage_of_layer[l] = static_cast<std::int32_t>(stage);
      plan.layers[l].devices = {DeviceId{stage}};
      plan.schedule.rank_lists.at(stage).devices = {DeviceId{stage}};
    }
    return plan;
  };
  REQUIRE(world.network.layers.at(0).kind.as<Input>() != nullptr);
  REQUIRE(world.network.layers.at(1).kind.as<Input>() == nullptr);
  const std::vector<std::size_t> first{0, 3};
  lowering::Estimator estimator(input.step());
  const Staged moved = move_borders(input, estimator, {first, make(first)}, make);
  CHECK(moved.first.at(1) > 1);
  // The plan that it must not make would be the fastest.
  CHECK(estimator.step_time(make({0, 1})) < estimator.step_time(moved.plan));
}
