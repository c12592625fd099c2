// Whole hybrid plans: what they gain where the paper claims a gain.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "core/errors.hpp"
#include "lowering/memory.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "strategies/hybrid/chain.hpp"
#include "strategies/price.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/world.hpp"
#include "topologies/topologies.hpp"

using namespace parsim;
using namespace parsim::strategies;
using testing::World;

namespace {

/// A network on a cluster with a simulator of it.
std::set<DeviceId> devices_of(const Plan& plan) {
  std::set<DeviceId> used;
  for (const LayerPlan& layer : plan.layers)
    used.insert(layer.devices.begin(), layer.devices.end());
  return used;
}

}  // namespace

// Akintoye et al. claim a nearly linear speedup; here 0.89 of linear, with links shared as the
// simulator shares them. 256 scans a device need micro-batches to fit one device, too.
TEST_CASE("hybrid: 3D-ResAttNet-34 in two parts on 8 V100 is nearly eight times one V100") {
  constexpr std::int64_t batch = 256;
  const World one("3d-resattnet34", "star:1,device=v100-sxm2,rate=20GB/s,latency=1us");
  const StrategyInput alone = one.simulated(batch);
  const Price single = simulated_price(alone, plan_hybrid(alone));
  const World eight("3d-resattnet34", "dgx-v100");
  StrategyInput input = eight.simulated(8 * batch);
  input.parts = 2;
  const Plan plan = plan_hybrid(input);
  const Price price = simulated_price(input, plan);
  const double speedup = 8 * (single.step / price.step);
  MESSAGE("one device ", single.step.count(), " s, eight ", price.step.count(),
          " s for 8 times the samples: ", speedup, " times the samples a second");
  CHECK(single.fits());
  CHECK(price.fits());
  CHECK(*std::max_element(plan.schedule.stage_of_layer.begin(),
                          plan.schedule.stage_of_layer.end()) == 1);
  CHECK(devices_of(plan).size() == 8);
  CHECK(speedup >= 0.89 * 8);
  CHECK(speedup <= 8);
}

// "On average 20 % better training time than existing parallel methods" (the 2022 abstract): the
// claim is printed with our result, but is not a bound.
TEST_CASE("hybrid: on unequal devices no slower than equal data parallelism and plain pipelines") {
  double log_data = 0, log_pipeline = 0;
  int count = 0;
  for (const std::string cluster :
       {"mixed-p100-v100",
        "nodes:2x2,device=v100-sxm2*2+t4*2,intra=12GB/s,inter=1.25GB/s,latency=5us",
        "star:3,device=v100-sxm2*1+p100-sxm2*1+t4*1,rate=3GB/s,latency=5us"}) {
    for (const std::string network : {"vgg16", "resnet18"}) {
      const World world(network, cluster);
      const StrategyInput input =
          world.simulated(8 * static_cast<std::int64_t>(world.cluster.devices.size()));
      const Price hybrid = simulated_price(input, plan_hybrid(input)),
                  data = simulated_price(input, plan_data(input)),
                  pipeline = simulated_price(input, plan_pipeline(input));
      CAPTURE(cluster);
      CAPTURE(network);
      CHECK_FALSE(data.better_than(hybrid));
      CHECK_FALSE(pipeline.better_than(hybrid));
      MESSAGE(network, " on ", cluster, ": hybrid ", hybrid.step.count(), " s, data ",
              data.step.count(), " s, pipeline ", pipeline.step.count(), " s");
      log_data += std::log(data.step / hybrid.step);
      log_pipeline += std::log(pipeline.step / hybrid.step);
      ++count;
    }
  }
  MESSAGE("geometric mean gain over data ", std::exp(log_data / count), ", over pipeline ",
          std::exp(log_pipeline / count), "; claimed on average 1.2 over existing methods");
}

TEST_CASE("hybrid: memory by the closed form is what memory_use says, replicas included") {
  const World world("alexnet", "star:4,device=v100-sxm2,rate=10GB/s,latency=1us");
  const StrategyInput input = world.simulated(64);
  const std::vector<DeviceId> devices{DeviceId{0}, DeviceId{1}, DeviceId{2}, DeviceId{3}};
  const hybrid::Chain chain(input, devices);
  const std::vector<std::size_t> first = hybrid::equal_load(chain, 2, 8, 4, 0);
  const hybrid::Problem problem = make_problem(input, chain, first, 2, 4);
  const hybrid::Choice choice{first, 4, {0, 1, 2, 3}, {10, 6}, {}};
  const auto use =
      lowering::memory_use(world.network, world.cluster, make_plan(input, devices, choice));
  for (std::size_t d = 0; d < 4; ++d) {
    CAPTURE(d);
    const double exact = static_cast<double>(use[d].total().value);
    CHECK(problem.memory_bytes[d % 2].at(choice.shares[d / 2]) ==
          testing::approx(exact).epsilon(1e-9));
  }
}

TEST_CASE("hybrid: memory is a constraint") {
  // All of VGG-16 with its states needs 1.5 GiB and more; two parts do with less each.
  World world("vgg16", "star:4,device=v100-sxm2,rate=10GB/s,latency=1us");
  const StrategyInput input = world.simulated(16);
  CHECK(simulated_price(input, plan_data(input)).fits());
  for (Device& device : world.cluster.devices) device.memory = Bytes{1'700'000'000};
  CHECK_FALSE(simulated_price(input, plan_data(input)).fits());
  const Plan plan = plan_hybrid(input);
  CHECK(simulated_price(input, plan).fits());
  CHECK(devices_of(plan).size() > 1);
}

TEST_CASE("hybrid: one number of parts if asked, and a sentence if that cannot be") {
  const World world("lenet5", "star:4,device=v100-sxm2,rate=10GB/s,latency=1us");
  StrategyInput input = world.simulated(16);
  for (const std::int32_t parts : {1, 2, 3, 4}) {
    input.parts = parts;
    const Plan plan = plan_hybrid(input);
    CHECK(std::set<std::int32_t>(plan.schedule.stage_of_layer.begin(),
                                 plan.schedule.stage_of_layer.end())
              .size() == static_cast<std::size_t>(parts));
  }
  input.parts = 5;
  CHECK_THROWS_WITH_AS((void)plan_hybrid(input),
                       "strategy 'hybrid': 5 parts for 4 devices and 14 layers; accepted: 1 to 4, "
                       "each with a layer and a device",
                       InputError);
  input.parts = 2;
  input.micro_batches = 5;
  CHECK_THROWS_WITH_AS((void)plan_hybrid(input),
                       "strategy 'hybrid': batch 16 in 5 micro-batches; accepted: a number of "
                       "micro-batches that divides the batch",
                       InputError);
}

TEST_CASE("hybrid: devices behind a slow cable are left out, whatever the number of parts") {
  const World world("alexnet",
                    "nodes:2x2,device=v100-sxm2,intra=100GB/s,inter=0.05GB/s,latency=1us");
  for (const std::int32_t parts : {0, 1, 2}) {
    CAPTURE(parts);
    StrategyInput input = world.simulated(64);
    if (parts > 0) input.parts = parts;
    const Plan plan = plan_hybrid(input);
    CHECK(devices_of(plan).size() <= 2);
    CHECK(simulated_price(input, plan).step < 0.5 * simulated_price(input, plan_data(input)).step);
  }
}

TEST_CASE("hybrid: more than sixteen micro-batches a part where memory demands it") {
  World world("vgg16", "star:2,device=v100-sxm2,rate=10GB/s,latency=1us");
  StrategyInput input = world.input(256);
  input.parts = 2;
  const auto most = [&](std::int32_t micro_batches) {
    StrategyInput asked = input;
    asked.micro_batches = micro_batches;
    Bytes bytes{};
    for (const lowering::MemoryUse& use :
         lowering::memory_use(world.network, world.cluster, plan_hybrid(asked)))
      bytes = std::max(bytes, use.total());
    return bytes;
  };
  const Bytes many = most(256), few = most(32);
  REQUIRE(many < few);
  for (Device& device : world.cluster.devices)
    device.memory = Bytes{many.value + (few.value - many.value) / 4};
  const Plan plan = plan_hybrid(input);
  CHECK(plan.schedule.micro_batches > 32);
  CHECK(fits(input, plan));
}

TEST_CASE("hybrid: the budget bounds the genetic search, and the plan says so") {
  const World world("alexnet", "mixed-p100-v100");
  StrategyInput input = world.input(64);
  const auto says = [](const Plan& plan) {
    return std::any_of(plan.notes.begin(), plan.notes.end(), [](const std::string& note) {
      return note.starts_with("the genetic search used its budget of 10 evaluations");
    });
  };
  CHECK_FALSE(says(plan_hybrid(input)));
  input.budget = 10;
  const Plan plan = plan_hybrid(input);
  CHECK(says(plan));
  CHECK(plan == plan_hybrid(input));
}

TEST_CASE("hybrid: another seed may find another plan, the same seed the same") {
  const World world("resnet18", "mixed-p100-v100");
  StrategyInput input = world.simulated(64);
  input.parts = 4;
  for (const std::uint64_t seed : {1U, 2U}) {
    input.seed = seed;
    CHECK(plan_hybrid(input) == plan_hybrid(input));
  }
}
