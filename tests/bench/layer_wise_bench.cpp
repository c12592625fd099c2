// How long the layer-wise strategy searches, and its optimum against exhaustive search where that
// takes too long for a test.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "core/dag_traffic.hpp"
#include "lowering/lower.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "strategies/layer_wise/tables.hpp"
#include "tests/support/enumeration.hpp"
#include "tests/support/world.hpp"
#include "topologies/topologies.hpp"

namespace parsim {
namespace {

using testing::World;

strategies::StrategyInput asked(const World& world, strategies::SearchCosts costs) {
  const std::size_t gpus = devices_of(world.cluster, DeviceKind::gpu).size();
  strategies::StrategyInput input = world.input(32 * static_cast<std::int64_t>(gpus));
  input.search_costs = costs;
  return input;
}

const char* const four = "star:4,device=p100-sxm2,rate=20GB/s,latency=1us";
const char* const sixteen = "p100-4x4";
const char* const sixty_four = "nodes:16x4,device=p100-sxm2,intra=20GB/s,inter=12GB/s,latency=1us";

/// The whole strategy without simulations. Checksum: the plan is valid and the same every time.
void search(benchmark::State& state, const char* network, const char* machines,
            strategies::SearchCosts costs) {
  const World world(network, machines);
  const strategies::StrategyInput input = asked(world, costs);
  const Plan first = strategies::plan_layer_wise(input);
  Plan plan;
  for (auto _ : state) plan = strategies::plan_layer_wise(input);
  if (!(plan == first)) state.SkipWithError("two searches differ");
  validate(plan, world.network, world.cluster, "benchmark");
  const ExecDag dag = lowering::lower(world.network, world.cluster, plan);
  state.counters["moved_MB"] = static_cast<double>(bytes_moved(dag).value) / 1e6;
}
// The goals are 10 ms, 50 ms, 1 s and 5 s; the paper took 100 ms and 400 ms for the first two.
BENCHMARK_CAPTURE(search, vgg16_on_4_paper, "vgg16", four, strategies::SearchCosts::paper)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(search, vgg16_on_4_own, "vgg16", four, strategies::SearchCosts::own)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(search, inception_v3_on_4_paper, "inception_v3", four,
                  strategies::SearchCosts::paper)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(search, inception_v3_on_4_own, "inception_v3", four, strategies::SearchCosts::own)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(search, resnet152_on_16_paper, "resnet152", sixteen,
                  strategies::SearchCosts::paper)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(search, resnet152_on_16_own, "resnet152", sixteen, strategies::SearchCosts::own)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(search, inception_v3_on_64_paper, "inception_v3", sixty_four,
                  strategies::SearchCosts::paper)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(search, inception_v3_on_64_own, "inception_v3", sixty_four,
                  strategies::SearchCosts::own)
    ->Unit(benchmark::kMillisecond);

/// Exhaustive search finds nothing better. LeNet-5 has 1.1e7 strategies of its convolutions, pools
/// and dense layers, times 6 for the flattening view and 3 for the loss.
void exhaustive(benchmark::State& state, const char* network, bool bounded) {
  const World world(network, four);
  const strategies::StrategyInput input = asked(world, strategies::SearchCosts::paper);
  strategies::layer_wise::ClusterModel model(input, strategies::SearchCosts::paper);
  const strategies::layer_wise::Problem problem =
      make_tables(input, model, strategies::layer_wise::TransferRule::slowest_receiver, {})
          .problem(1, 0);
  double least = 0;
  std::int64_t visited = 0;
  for (auto _ : state) {
    testing::Enumeration all(problem, bounded);
    least = all.least();
    visited = all.leaves();
  }
  const double found = solve(problem).cost;
  if (std::abs(found - least) > 1e-12 * least) state.SkipWithError("the search is not optimal");
  state.counters["leaves"] = static_cast<double>(visited);
  state.counters["step_ms"] = least * 1e3;
}
BENCHMARK_CAPTURE(exhaustive, lenet5_all, "lenet5", false)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(exhaustive, lenet5_bounded, "lenet5", true)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(exhaustive, alexnet_bounded, "alexnet_one_tower", true)
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace parsim
