// Whole pipelines, simulated.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "strategies/price.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/world.hpp"

using namespace parsim;
using namespace parsim::strategies;
using testing::World;

namespace {

double step_of(const std::string& network, const std::string& cluster, std::int64_t batch,
               std::optional<std::int32_t> micro_batches = {}) {
  const World world(network, cluster);
  StrategyInput input = world.simulated(batch);
  input.micro_batches = micro_batches;
  return simulated_price(input, plan_pipeline(input)).step.count();
}

}  // namespace

TEST_CASE("pipeline: another device of the same kind makes no step longer") {
  for (const std::string network : {"vgg16", "resnet18"}) {
    double before = 1e300;
    for (int devices = 1; devices <= 7; ++devices) {
      CAPTURE(network);
      CAPTURE(devices);
      const double step =
          step_of(network, fmt::format("star:{},device=v100-sxm2-32,rate=12GB/s", devices), 128);
      CHECK(step <= before * (1 + 1e-9));
      before = step;
    }
  }
}

TEST_CASE("pipeline: the order in which a star names its devices makes no difference") {
  const auto step = [](const std::string& devices) {
    return step_of("resnet18", fmt::format("star:4,device={},rate=12GB/s", devices), 64);
  };
  const double one = step("p100-sxm2*2+v100-sxm2*2");
  CHECK(step("v100-sxm2*2+p100-sxm2*2") == testing::approx(one).epsilon(1e-6));
}

TEST_CASE("pipeline: no number of micro-batches is faster than the chosen one") {
  for (const std::string cluster :
       {"nodes:2x4,device=v100-sxm2,intra=50GB/s,inter=12.5GB/s", "mixed-p100-v100"}) {
    const double chosen = step_of("alexnet", cluster, 64);
    for (const std::int32_t number : {1, 2, 4, 8, 16, 32, 64}) {
      CAPTURE(cluster);
      CAPTURE(number);
      CHECK(chosen <= step_of("alexnet", cluster, 64, number) * (1 + 1e-9));
    }
  }
}

TEST_CASE("pipeline: every stage has work, as long as there are layers enough") {
  const World world("alexnet", "star:6,device=v100-sxm2,rate=12GB/s");
  StrategyInput input = world.simulated(64);
  input.pipeline_parallel = 6;
  const Plan plan = plan_pipeline(input);
  std::vector<int> working(6, 0);
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    if (world.network.layers[l].kind.as<Input>() != nullptr) continue;
    ++working[static_cast<std::size_t>(plan.schedule.stage_of_layer[l])];
  }
  for (const int layers : working) CHECK(layers > 0);
}
