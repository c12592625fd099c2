// Whole searches by `best`, without simulations: how many plans a second all estimators of a search
// price, the strategies that give it its starts included. The goal is 10,000;
// validation/scale/plot.py stores what was measured.
#include <benchmark/benchmark.h>

#include <string>

#include "core/hash.hpp"
#include "core/json.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "strategies/price.hpp"
#include "topologies/topologies.hpp"

namespace parsim {
namespace {

/// Checksums: the estimated step of the chosen plan, and 32 bits of a hash of the plan itself.
void best(benchmark::State& state, const std::string& name) {
  const Cluster cluster = topologies::load_cluster("dgx-v100", "benchmark");
  const auto cost = sim::make_tile_costs(cluster);
  const Network network = networks::load_network(name, {}, "benchmark");
  strategies::StrategyInput input{network, cluster, *cost};
  input.batch = 256;
  Plan plan;
  double plans = 0, known = 0, needed = 0, made = 0;
  for (auto _ : state) {
    lowering::PriceCache prices(input.step());
    strategies::StrategyInput counted = input;
    counted.prices = &prices;
    plan = strategies::plan_best(counted);
    plans += static_cast<double>(prices.counts().plans);
    known += static_cast<double>(prices.counts().known);
    needed += static_cast<double>(prices.counts().needed);
    made += static_cast<double>(prices.counts().made);
  }
  lowering::Estimator estimator({network, cluster, *cost});
  const strategies::Price price = strategies::estimated_price(input, estimator, plan);
  if (strategies::estimated_price(input, estimator, strategies::plan_data(input))
          .better_than(price))
    state.SkipWithError("worse than data parallelism, which is a start");
  state.counters["step_ms"] = price.step.count() * 1e3;
  state.counters["plan_hash"] = static_cast<double>(fnv1a(to_json(plan)) & 0xffffffffU);
  state.counters["plans"] = plans / static_cast<double>(state.iterations());
  state.counters["plans_known"] = known / plans;
  state.counters["fragments_known"] = 1 - made / needed;
  state.counters["plans_per_s"] = benchmark::Counter(plans, benchmark::Counter::kIsRate);
}
BENCHMARK_CAPTURE(best, resnet50, "resnet50")->Unit(benchmark::kMillisecond)->Iterations(1);
BENCHMARK_CAPTURE(best, inception_v3, "inception_v3")->Unit(benchmark::kMillisecond)->Iterations(1);
BENCHMARK_CAPTURE(best, gpt2_medium, "gpt:layers=24,hidden=1024,heads=16")
    ->Unit(benchmark::kMillisecond)
    ->Iterations(1);

}  // namespace
}  // namespace parsim
