// What `best` expects of memory before it makes plans, against the plans.
#include "strategies/best/memory_forecast.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "strategies/best/candidates.hpp"
#include "strategies/price.hpp"
#include "strategies/tensor/arrangement.hpp"
#include "strategies/tensor/degrees.hpp"
#include "tests/support/world.hpp"

namespace parsim::strategies {

TEST_CASE("memory forecast: most plans that fit do by forecast, and the other way round") {
  const testing::World world("gpt:layers=16,hidden=6144,heads=48,seq_length=1024,vocab_size=8000",
                             "nodes:2x8,device=a100-sxm4-40,intra=300GB/s,inter=100GB/s");
  StrategyInput input = world.input(32);
  input.precision = Precision::bf16;
  input.optimizer = Optimizer::adam;
  input.sequence_parallel = true;
  std::vector<DeviceId> devices;
  for (std::size_t d = 0; d < world.cluster.devices.size(); ++d) devices.emplace_back(d);
  tensor::Arranging arranging(input);
  lowering::Estimator estimator(input.step());
  for (const std::int32_t stage : {1, 3}) {
    CAPTURE(stage);
    input.zero_stage = stage;
    MemoryForecast forecast(input, estimator);
    int tried = 0, right = 0, fit = 0, easy = 0, easily = 0;
    const std::vector<tensor::ParallelDegrees> every = tensor::every_degrees(input, devices);
    for (std::size_t i = 0; i < every.size(); i += 4) {
      const tensor::ParallelDegrees& degrees = every[i];
      const auto grouped = tensor::in_groups(input, devices, degrees.tensor, degrees.context);
      const Plan plan = arranging.plan_of(arranging.arrange(degrees, grouped));
      const bool fits = overcommit(input, plan) == 0;
      ++tried;
      fit += fits ? 1 : 0;
      right += fits == (forecast.slowdown(degrees, grouped) == 1) ? 1 : 0;
      if (forecast.fits_easily(degrees, grouped)) {
        StrategyInput recomputing = input;
        recomputing.recompute = Recompute::full;
        ++easy;
        easily += overcommit(recomputing, plan) == 0 ? 1 : 0;
      }
    }
    CHECK(easy > tried / 5);
    CHECK(easily > easy * 9 / 10);
    CHECK(fit > tried / 5);
    CHECK(fit < tried * 4 / 5);
    CHECK(right > tried * 9 / 10);
    MESSAGE(tried << " plans, " << fit << " fit, " << right << " as expected");
  }
}

TEST_CASE("memory forecast: weights that are gathered over slow links slow a step down") {
  const auto slowdown = [](const char* rate) {
    const testing::World world("gpt:layers=16,hidden=6144,heads=48,seq_length=1024,vocab_size=8000",
                               std::string("star:8,device=a100-sxm4-40,rate=") + rate);
    StrategyInput input = world.input(8);
    input.precision = Precision::bf16;
    input.optimizer = Optimizer::adam;
    std::vector<DeviceId> devices;
    for (std::size_t d = 0; d < 8; ++d) devices.emplace_back(d);
    tensor::ParallelDegrees degrees;
    degrees.data = 8;
    lowering::Estimator estimator(input.step());
    return MemoryForecast(input, estimator).slowdown(degrees, devices);
  };
  const double fast = slowdown("300GB/s"), slow = slowdown("1GB/s");
  CHECK(fast >= 1);
  CHECK(fast < 1.1);
  CHECK(slow > 2);
  CHECK(slow < 1000);
}

// Walking through a step takes ten times as long as adding up its memory.
TEST_CASE("memory search: what does not fit is not timed where something else does") {
  testing::World world("gpt:layers=2,hidden=64,heads=4,seq_length=16,vocab_size=32",
                       "star:2,device=a100-sxm4-80,rate=25GB/s,latency=5us");
  const auto steps_timed = [&](std::int64_t bytes) {
    for (Device& device : world.cluster.devices) device.memory = Bytes{bytes};
    StrategyInput input = world.input(8);
    input.recompute = Recompute::none;
    lowering::PriceCache prices(input.step());
    input.prices = &prices;
    lowering::Estimator estimator(input.step());
    MemorySearch search(input, estimator);
    const std::vector<PricedPlan> fitting =
        search.variants(plan_data(input), "data", {0, Seconds{1e9}});
    CHECK(fitting.empty() == (bytes == 1));
    return prices.counts().plans;
  };
  CHECK(steps_timed(1) == 0);
  CHECK(steps_timed(std::int64_t{1} << 36) > 0);
}

}  // namespace parsim::strategies
