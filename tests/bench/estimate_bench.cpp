// Pricing plans that differ in one layer, as a search does: ResNet-50 on eight devices. The goal is
// 10,000 in a second; validation/scale/plot.py stores what was measured.
#include <benchmark/benchmark.h>

#include <cmath>

#include "lowering/estimate.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "strategies/strategies.hpp"
#include "topologies/topologies.hpp"

namespace parsim {
namespace {

/// remembers   one estimator prices all plans, as a search does; else each has a new one
void estimate_one_layer_changes(benchmark::State& state, bool remembers) {
  const Cluster cluster = topologies::load_cluster("dgx-v100", "benchmark");
  const auto cost = sim::make_constant_efficiency(cluster);
  const Network network = networks::load_network("resnet50", {}, "benchmark");
  strategies::StrategyInput input{network, cluster, *cost};
  input.batch = 256;
  const Plan data = strategies::plan_data(input), split = strategies::plan_model_even(input);
  lowering::Estimator estimator(input.step());
  Plan plan = data;
  const std::size_t layers = plan.layers.size();
  std::size_t changed = 0;
  double sum = 0;
  for (auto _ : state) {
    // Each layer takes the channel split for one evaluation.
    plan.layers[changed] = data.layers[changed];
    changed = (changed + 7) % layers;
    plan.layers[changed] = split.layers[changed];
    sum +=
        (remembers ? estimator.step_time(plan) : lowering::Estimator(input.step()).step_time(plan))
            .count();
  }
  lowering::Estimator fresh(input.step());
  const double whole = fresh.step_time(plan).count(), again = estimator.step_time(plan).count();
  if (!(std::abs(again - whole) <= 1e-9 * whole) || !(sum > 0)) {
    state.SkipWithError("a remembered estimate differs from a whole one");
  }
  double checksum = 0;
  for (std::size_t i = 0; i < layers; ++i) {
    plan = data;
    plan.layers[i] = split.layers[i];
    checksum += estimator.step_time(plan).count();
  }
  state.counters["checksum"] = checksum;
  state.counters["evaluations"] =
      benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK_CAPTURE(estimate_one_layer_changes, remembering, true)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(estimate_one_layer_changes, each_anew, false)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace parsim
