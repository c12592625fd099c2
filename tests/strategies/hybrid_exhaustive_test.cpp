// Two parts against every plan of two parts: all cuts, all ordered pairs of devices.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "core/random.hpp"
#include "strategies/hybrid/chain.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/price.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/world.hpp"

namespace parsim::strategies::hybrid {
namespace {

struct Instance {
  std::string network, devices;
  std::string rate = "10GB/s";
  std::int64_t batch = 0;
  std::int32_t micro_batches = 1;
};

/// Step of the strategy's plan over the least of all plans of one replica in two parts.
double over_optimum(const Instance& instance) {
  const testing::World world(
      instance.network, "star:" + instance.devices + ",rate=" + instance.rate + ",latency=2us");
  StrategyInput input = world.simulated(instance.batch);
  input.parts = 2;
  input.micro_batches = instance.micro_batches;
  const Chain chain(input, workers(input));
  Seconds least{1e9};
  for (const std::size_t second : chain.units) {
    if (second == 0) continue;
    for (std::size_t a = 0; a < chain.devices.size(); ++a) {
      for (std::size_t b = 0; b < chain.devices.size(); ++b) {
        Choice choice{{0, second},
                      instance.micro_batches,
                      {a, b},
                      {instance.batch / instance.micro_batches},
                      {}};
        const Plan plan = make_plan(input, chain.devices, choice);
        if (fits(input, plan)) least = std::min(least, input.simulate(plan));
      }
    }
  }
  return input.simulate(plan_hybrid(input)) / least;
}

const std::vector<Instance>& known_instances() {
  static const std::vector<Instance> all{
      {"lenet5", "2,device=p100-sxm2*1+v100-sxm2*1", "10GB/s", 4096, 2},
      {"lenet5", "2,device=p100-sxm2*1+v100-sxm2*1", "10GB/s", 4096, 4},
      {"lenet5", "2,device=rtx-2080ti*1+rtx-3090*1", "10GB/s", 8192, 4},
      {"lenet5", "3,device=k80*1+p100-sxm2*1+v100-sxm2*1", "10GB/s", 8192, 8},
      {"mlp", "2,device=p100-sxm2*1+v100-sxm2*1", "10GB/s", 8192, 4},
      {"mlp", "2,device=p100-sxm2*1+v100-sxm2*1", "10GB/s", 16384, 8},
      {"mlp", "3,device=k80*1+p100-sxm2*1+v100-sxm2*1", "10GB/s", 32768, 4},
      {"hmp_mnist", "2,device=p100-sxm2*1+v100-sxm2*1", "10GB/s", 1000, 2},
      {"hmp_mnist", "2,device=p100-sxm2*1+v100-sxm2*1", "10GB/s", 1000, 4},
      {"hmp_mnist", "2,device=p100-sxm2*1+v100-sxm2*1", "10GB/s", 1000, 10},
      {"hmp_mnist", "2,device=rtx-2080ti*1+rtx-3090*1", "10GB/s", 1000, 4},
      {"hmp_mnist", "3,device=k80*1+p100-sxm2*1+v100-sxm2*1", "10GB/s", 1000, 8},
      {"hmp_cifar10", "2,device=p100-sxm2*1+v100-sxm2*1", "10GB/s", 200, 4},
      {"hmp_cifar10", "2,device=rtx-2080ti*1+rtx-3090*1", "10GB/s", 800, 8},
      {"hmp_cifar10", "2,device=p100-sxm2*1+v100-sxm2*1", "10GB/s", 1000, 10},
      {"alexnet", "2,device=p100-sxm2*1+v100-sxm2*1", "10GB/s", 128, 4},
      {"alexnet", "2,device=p100-sxm2*1+v100-sxm2*1", "10GB/s", 256, 4},
      {"alexnet", "2,device=p100-sxm2*1+v100-sxm2*1", "10GB/s", 512, 8},
      {"alexnet", "2,device=p100-sxm2*1+v100-sxm2*1", "30GB/s", 512, 8},
      {"alexnet_one_tower", "2,device=p100-sxm2*1+v100-sxm2*1", "10GB/s", 128, 2}};
  return all;
}

Instance drawn(Random& random) {
  const auto any = [&](const auto& list) { return list[random.below(list.size())]; };
  const std::array networks{"lenet5", "mlp", "hmp_mnist", "hmp_cifar10", "alexnet_one_tower"};
  const std::array cards{"k80", "p100-sxm2", "v100-sxm2", "t4", "rtx-2080ti", "rtx-3090"};
  const std::array rates{"1GB/s", "5GB/s", "12GB/s", "30GB/s"};
  Instance instance;
  instance.network = any(networks);
  const std::size_t first = random.below(cards.size());
  const std::size_t second = (first + 1 + random.below(cards.size() - 1)) % cards.size();
  const std::size_t more = random.below(2);
  instance.devices = std::to_string(2 + more) + ",device=" + std::string(cards[first]) + "*" +
                     std::to_string(1 + more) + "+" + cards[second] + "*1";
  instance.rate = any(rates);
  instance.micro_batches = any(std::array{2, 4, 8});
  instance.batch = instance.micro_batches * any(std::array{8, 32, 128});
  return instance;
}

}  // namespace

TEST_CASE("hybrid: two parts are as fast as the best of all cuts and pairs of devices") {
  std::vector<Instance> instances = known_instances();
  Random random(25);
  for (int i = 0; i < 20; ++i) instances.push_back(drawn(random));
  if (!testing::long_tests()) instances = {instances[0], instances[12]};
  std::vector<double> ratios;
  for (const Instance& instance : instances) {
    CAPTURE(instance.network);
    CAPTURE(instance.devices);
    CAPTURE(instance.rate);
    CAPTURE(instance.batch);
    CAPTURE(instance.micro_batches);
    ratios.push_back(over_optimum(instance));
    CHECK(ratios.back() <= 1.02);
  }
  std::sort(ratios.begin(), ratios.end());
  MESSAGE("step over the exhaustive optimum: median ", ratios[ratios.size() / 2], ", worst ",
          ratios.back(), " of ", ratios.size());
  CHECK(ratios[ratios.size() / 2] <= 1.005);
}

}  // namespace parsim::strategies::hybrid
