#include "strategies/move_borders.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "strategies/blocks.hpp"
#include "strategies/price.hpp"
#include "tests/support/world.hpp"

using namespace parsim;
using namespace parsim::strategies;
using testing::World;

namespace {

/// A pipeline of one device a stage, cut elsewhere.
Plan cut_at(Plan plan, const std::vector<std::size_t>& first) {
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    const auto after = std::upper_bound(first.begin(), first.end(), l);
    const std::size_t stage = static_cast<std::size_t>(after - first.begin()) - 1;
    plan.schedule.stage_of_layer[l] = static_cast<std::int32_t>(stage);
    plan.layers[l].devices = {DeviceId{stage}};
    plan.schedule.rank_lists.at(stage).devices = {DeviceId{stage}};
  }
  return plan;
}

}  // namespace

TEST_CASE("move borders: the fullest device is relieved where a cut in two fits") {
  // Every time with blocks; with single layers, of which some keep nothing, nine times of ten: only
  // one cut fits, to the byte.
  int relieved = 0, stuck = 0;
  for (const char* name : {"lenet5", "alexnet", "gpt:layers=6,hidden=64,heads=2,seq_length=32"}) {
    World world(name, "star:2,device=v100-sxm2,rate=10GB/s");
    StrategyInput input = world.input(16);
    input.pipeline_parallel = 2;
    input.micro_batches = 4;
    const Plan pipeline = plan_pipeline(input);
    const auto make = [&](const std::vector<std::size_t>& first) {
      return cut_at(pipeline, first);
    };
    const std::vector<std::size_t> units = units_of(world.network, {});
    lowering::Estimator estimator(input.step());
    // What each cut needs is what devices have, one after the other; nothing else fits for sure.
    for (std::size_t wanted = 1; wanted < units.size(); ++wanted) {
      if (units[wanted] < 2) continue;  // inputs alone
      const auto uses = estimator.memory(make({0, units[wanted]}));
      for (std::size_t d = 0; d < 2; ++d) world.cluster.devices[d].memory = uses[d].total();
      for (std::size_t start = 1; start < units.size(); ++start) {
        if (units[start] < 2) continue;
        const std::vector<std::size_t> first{0, units[start]};
        CAPTURE(name);
        CAPTURE(units[wanted]);
        CAPTURE(units[start]);
        const Staged moved = relieve_fullest(input, estimator, {first, make(first)}, make);
        const bool done = fits(input, moved.plan);
        CHECK((done || units.size() == world.network.layers.size()));
        CHECK(moved.plan == make(moved.first));
        stuck += done ? 0 : 1;
        relieved += done && moved.first != first ? 1 : 0;
      }
    }
  }
  CHECK(relieved > 100);
  CHECK(stuck < relieved / 10);
}

TEST_CASE("move borders: a plan that fits nowhere stays") {
  World world("lenet5", "star:2,device=v100-sxm2,rate=10GB/s");
  StrategyInput input = world.input(16);
  input.pipeline_parallel = 2;
  input.micro_batches = 1;
  const Plan pipeline = plan_pipeline(input);
  const auto make = [&](const std::vector<std::size_t>& first) { return cut_at(pipeline, first); };
  for (Device& device : world.cluster.devices) device.memory = Bytes{1000};
  lowering::Estimator estimator(input.step());
  CHECK(relieve_fullest(input, estimator, {{0, 3}, make({0, 3})}, make).first ==
        std::vector<std::size_t>{0, 3});
}

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
