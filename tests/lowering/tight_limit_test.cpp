// A limit of the estimate where the lower bound of a step is the step itself.
#include <doctest/doctest.h>

#include "lowering/estimate.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/world.hpp"

namespace parsim::testing {
namespace {

TEST_CASE(
    "tight limit: two stages and one micro-batch on fast links are bound from below exactly") {
  Network network;
  network.name = "two layers";
  const LayerId input = add_input(network, "input", Shape{{{Dim::channel, 512}}});
  const LayerId first = add_layer(network, "first", Dense{512}, {input});
  const LayerId last = add_layer(network, "last", Dense{512}, {first});
  add_layer(network, "loss", Loss{}, {last});
  const World world(network, topologies::load_cluster(
                                 "star:2,device=v100-sxm2,rate=1000000GB/s,latency=0us", "test"));
  Plan plan = single_device_plan(network, 64);
  plan.schedule.rank_lists.push_back(plan.schedule.rank_lists[0]);
  plan.schedule.rank_lists[1].devices = {DeviceId{1}};
  for (const Direction direction : {Direction::forward, Direction::backward}) {
    plan.schedule.rank_lists[1].slots[direction == Direction::forward ? 0 : 1].stage = 1;
  }
  for (std::size_t l = last.index(); l < network.layers.size(); ++l) {
    plan.layers[l].devices = {DeviceId{1}};
    plan.schedule.stage_of_layer[l] = 1;
  }
  const strategies::StrategyInput asked = world.input(64);
  const Seconds whole = lowering::Estimator(asked.step()).step_time(plan);
  for (const double factor : {0.5, 0.9, 0.99, 0.999, 1.001, 1.01}) {
    CAPTURE(factor);
    const Seconds limit = whole * factor;
    const Seconds step = lowering::Estimator(asked.step()).step_time(plan, limit);
    CHECK(step <= whole);
    if (factor > 1) CHECK(step == whole);
    if (factor < 1) CHECK(step >= limit);
  }
}

// With one device all of a step but its updates is kernels, of which the backward pass repeats
// some.
TEST_CASE("tight limit: a plan is given up for its kernels, those of recomputation among them") {
  const World world("gpt:layers=4,hidden=64,heads=4,seq_length=64,vocab_size=32",
                    "star:1,device=v100-sxm2,rate=10GB/s,latency=1us");
  strategies::StrategyInput input = world.input(8);
  input.optimizer = Optimizer::sgd;
  input.recompute = strategies::Recompute::full;
  const Plan plan = strategies::with_memory_options(input, strategies::plan_data(input));
  lowering::Estimator estimator(input.step());
  const Seconds bound = estimator.step_time(plan, Seconds{1e-12});
  const Seconds whole = estimator.step_time(plan);
  const Plan kept = strategies::without_memory_options(world.network, plan);
  CHECK(bound > estimator.step_time(kept));
  CHECK(bound <= whole * (1 + 1e-9));
}

}  // namespace
}  // namespace parsim::testing
