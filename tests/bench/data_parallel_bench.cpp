// Simulating a data-parallel step of ResNet-50 with one all-reduce per layer: what a peer needs
// 59 s and 335 MB for at 1024 devices, without contention.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <cmath>
#include <string>

#include "core/dag_algorithms.hpp"
#include "core/dag_traffic.hpp"
#include "core/timeline.hpp"
#include "lowering/lower.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "strategies/strategies.hpp"
#include "topologies/topologies.hpp"

namespace parsim {
namespace {

/// Largest resident set so far of this process and of its children, whichever is larger.
double peak_megabytes() {
  rusage self{}, children{};
  getrusage(RUSAGE_SELF, &self);
  getrusage(RUSAGE_CHILDREN, &children);
  return static_cast<double>(std::max(self.ru_maxrss, children.ru_maxrss)) / 1024;
}

struct Step {
  Cluster cluster;
  std::unique_ptr<CostModel> cost;
  ExecDag dag;
};

Step data_parallel_step(std::int64_t nodes) {
  Step step{topologies::load_cluster(
                fmt::format("nodes:{}x8,device=v100-sxm2,intra=400GB/s,inter=25GB/s", nodes),
                "benchmark"),
            nullptr,
            {}};
  step.cost = sim::make_constant_efficiency(step.cluster);
  const Network network = networks::load_network("resnet50", {}, "benchmark");
  strategies::StrategyInput input{network, step.cluster, *step.cost};
  input.batch = 32 * 8 * nodes;
  input.sync = Sync::Kind::ring;
  input.bucket = Bytes{0};  // one all-reduce per layer
  step.dag = lowering::lower(network, step.cluster, strategies::plan_data(input));
  return step;
}

/// A wrong answer must not be a fast one: a DAG that is whole, every bit the same each time, bytes
/// on the links at least those that devices received, and no end before the longest chain's.
std::string fault(const Step& step, const Timeline& first, const Timeline& timeline) {
  if (!(timeline == first)) return "two runs differ";
  std::vector<Seconds> durations;
  for (std::size_t i = 0; i < step.dag.size(); ++i) {
    durations.push_back(device_time(step.dag, OpId{i}, *step.cost).time);
  }
  const Seconds least = critical_path(step.dag, durations).length;
  if (!(makespan(timeline) > least)) return "the step is shorter than its longest chain of kernels";
  double carried = 0;
  for (const double bytes : timeline.hop_bytes) carried += bytes;
  if (carried < static_cast<double>(bytes_moved(step.dag).value)) return "bytes are missing";
  return {};
}

void simulate_data_parallel(benchmark::State& state) {
  const Step step = data_parallel_step(state.range(0));
  const auto executor = sim::make_simgrid_executor(step.cluster, *step.cost, {});
  const Timeline first = executor->run(step.dag);
  Timeline timeline;
  for (auto _ : state) timeline = executor->run(step.dag);
  state.counters["peak_MB"] = peak_megabytes();
  const auto ops = static_cast<double>(step.dag.size());
  const double per_op = static_cast<double>(step.dag.bytes_in_memory()) / ops;
  const std::string wrong = fault(step, first, timeline);
  if (!wrong.empty()) state.SkipWithError(wrong.c_str());
  if (per_op > 48) state.SkipWithError("an operation takes more than 48 bytes");
  state.counters["ops"] = ops;
  state.counters["bytes_per_op"] = per_op;
  state.counters["step_ms"] = makespan(timeline).count() * 1e3;
}
BENCHMARK(simulate_data_parallel)->Arg(8)->Arg(128)->Unit(benchmark::kMillisecond);

void plan_and_lower_data_parallel(benchmark::State& state) {
  std::size_t ops = 0;
  for (auto _ : state) ops = data_parallel_step(state.range(0)).dag.size();
  state.counters["ops"] = static_cast<double>(ops);
}
BENCHMARK(plan_and_lower_data_parallel)->Arg(8)->Arg(128)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace parsim
