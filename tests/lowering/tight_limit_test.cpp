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

}  // namespace
}  // namespace parsim::testing
