// Pricing plans that differ in one layer, as a search does: ResNet-50 on eight devices.
#include <benchmark/benchmark.h>

#include <cmath>

#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "strategies/estimate.hpp"
#include "strategies/strategies.hpp"
#include "topologies/topologies.hpp"

namespace parsim {
namespace {

void estimate_one_layer_changes(benchmark::State& state) {
  const Cluster cluster = load_cluster("dgx-v100", "benchmark");
  const auto cost = make_constant_efficiency(cluster);
  const Network network = load_network("resnet50", {}, "benchmark");
  StrategyInput input{network, cluster, *cost};
  input.batch = 256;
  const Plan data = plan_data(input), split = plan_model_even(input);
  Estimator estimator(input);
  Plan plan = data;
  const std::size_t layers = plan.layers.size();
  std::size_t changed = 0;
  double sum = 0;
  for (auto _ : state) {
    // Each layer takes the channel split for one evaluation.
    plan.layers[changed] = data.layers[changed];
    changed = (changed + 7) % layers;
    plan.layers[changed] = split.layers[changed];
    sum += estimator.step_time(plan).count();
  }
  Estimator fresh(input);
  const double whole = fresh.step_time(plan).count(), again = estimator.step_time(plan).count();
  if (!(std::abs(again - whole) <= 1e-9 * whole) || !(sum > 0)) {
    state.SkipWithError("a remembered estimate differs from a whole one");
  }
  state.counters["evaluations"] =
      benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}
BENCHMARK(estimate_one_layer_changes)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace parsim
