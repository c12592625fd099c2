// The proof of meaning: every strategy's plans compute what the unsplit network computes.
#include "tests/support/meaning.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>

#include "lowering/lower.hpp"
#include "strategies/strategies.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/tiny_networks.hpp"

namespace parsim::testing {
namespace {

/// Every device takes its peak's time; the network is one rate.
class PeakCost final : public CostModel {
 public:
  explicit PeakCost(const Cluster& cluster) : cluster_(cluster) {}

  Cost compute(const Network& network, LayerId layer, const Part& part, Pass, DeviceId device,
               Precision precision) const override {
    const Flops work =
        forward_flops(network[layer].kind, input_shapes(network, layer), network[layer].out, part);
    return {work / cluster_.model(device).peak_at(precision) + Seconds{1e-6}, Origin::guessed};
  }
  Cost memory(DeviceId device, Bytes touched) const override {
    return {touched / cluster_.model(device).memory_rate, Origin::guessed};
  }
  Seconds transfer(DeviceId, DeviceId, Bytes payload) const override {
    return payload / BytesPerSecond{1e10};
  }
  Seconds collective(CollectiveKind, std::span<const DeviceId> group,
                     Bytes payload) const override {
    return static_cast<double>(group.size()) * (payload / BytesPerSecond{1e10});
  }
  std::string summary() const override { return "peak"; }

 private:
  const Cluster& cluster_;
};

/// GPUs of two speeds in turn, and a CPU last.
Cluster mixed_star(std::size_t gpus) {
  std::vector<DeviceModel> models;
  for (std::size_t d = 0; d < gpus; ++d) {
    models.push_back(d % 2 == 0 ? test_device("fast", "10 TFLOP/s")
                                : test_device("slow", "4 TFLOP/s"));
  }
  models.push_back(test_device("host", "1 TFLOP/s"));
  models.back().kind = DeviceKind::cpu;
  return star_of(models, "10 GB/s", "1us");
}

/// Every strategy on every tiny network, on `gpus` devices; the options take turns, so that every
/// pair of values meets somewhere.
void check_meaning(std::size_t gpus) {
  std::uint64_t seed = 1000 * gpus, turns = gpus;
  for (const strategies::Strategy& strategy : strategies::all()) {
    for (const Network& network : tiny_networks()) {
      // On three every other pair of strategy and network, on four the others.
      if (++turns % 2 == 0 && gpus > 2 && !long_tests()) continue;
      const Cluster cluster = mixed_star(gpus);
      const PeakCost cost(cluster);
      const std::size_t runs = gpus == 1 || !long_tests() ? 1 : 2;
      for (std::size_t run = 0; run < runs; ++run) {
        ++seed;
        const std::int32_t micro_batches = 1 << seed % 3;
        strategies::StrategyInput input{network, cluster, cost};
        input.batch = 8;
        input.micro_batches = micro_batches;
        input.budget = 40;  // searches of any length must mean the same
        input.schedule = seed % 2 == 0 ? strategies::PipelineSchedule::gpipe
                                       : strategies::PipelineSchedule::one_f_one_b;
        input.sync = seed / 2 % 2 == 0 ? Sync::Kind::ring : Sync::Kind::server;
        // The server is the CPU, a worker, or left to the strategy.
        const std::array servers{DeviceId{gpus}, DeviceId{}, DeviceId{0}};
        input.server = servers[seed / 4 % 3];
        input.bucket = Bytes{std::vector<std::int64_t>{0, 300, 1 << 20}[seed / 5 % 3]};
        input.shares =
            seed / 3 % 2 == 0 ? strategies::ShareRule::equal : strategies::ShareRule::proportional;
        input.rounding = seed / 7 % 2 == 0 ? strategies::Rounding::largest_remainder
                                           : strategies::Rounding::released;
        input.sequence_parallel = seed / 2 % 2 == 0;
        input.tensor_overlap = input.sequence_parallel && seed / 4 % 2 == 0;
        if (seed % 4 != 0) {
          input.parts = input.pipeline_parallel = static_cast<std::int32_t>(1 + seed % gpus);
        }
        const std::int32_t stages = input.pipeline_parallel.value_or(1);
        const bool layers_for_two = network.layers.size() >= 2 * static_cast<std::size_t>(stages);
        if (input.schedule == strategies::PipelineSchedule::one_f_one_b && stages > 1 &&
            micro_batches % stages == 0 && layers_for_two) {
          input.virtual_pipeline = 2;
        }
        const Plan plan = strategy.plan(input);
        CAPTURE(strategy.name);
        CAPTURE(network.name);
        CAPTURE(micro_batches);
        CAPTURE(seed);
        CHECK(difference(plan, lowering::lower(network, cluster, plan), seed) == "");
      }
    }
  }
}

}  // namespace

TEST_CASE("meaning: every strategy computes what the unsplit network computes, on one device") {
  check_meaning(1);
}

TEST_CASE("meaning: every strategy computes what the unsplit network computes, on two") {
  check_meaning(2);
}

TEST_CASE("meaning: every strategy computes what the unsplit network computes, on three") {
  check_meaning(3);
}

TEST_CASE("meaning: every strategy computes what the unsplit network computes, on four") {
  check_meaning(4);
}

}  // namespace parsim::testing
