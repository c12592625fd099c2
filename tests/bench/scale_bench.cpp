// How simulating grows with devices and layers: a data-parallel step of a chain of dense layers, an
// all-reduce for each. Times are processor time, children included, because SimGrid runs in one.
// validation/scale/plot.py draws them. The goals, on two cores: 1024 devices x 160 layers in 1.5 s
// with SimGrid and 0.3 s with the fast engine, 4096 in 15 s and 2 s, 16,384 in 10 s and 2 GB with
// the fast engine.
#include <benchmark/benchmark.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "core/dag_traffic.hpp"
#include "core/timeline.hpp"
#include "lowering/lower.hpp"
#include "sim/sim.hpp"
#include "strategies/strategies.hpp"
#include "topologies/topologies.hpp"

namespace parsim {
namespace {

/// What this process and its children have used so far.
struct Used {
  double seconds = 0, peak_megabytes = 0;
};
Used used() {
  Used sum;
  for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage{};
    getrusage(who, &usage);
    for (const timeval& part : {usage.ru_utime, usage.ru_stime}) {
      sum.seconds += static_cast<double>(part.tv_sec) + 1e-6 * static_cast<double>(part.tv_usec);
    }
    sum.peak_megabytes = std::max(sum.peak_megabytes, static_cast<double>(usage.ru_maxrss) / 1024);
  }
  return sum;
}

Network chain(std::int64_t layers) {
  Network network;
  network.name = fmt::format("chain{}", layers);
  LayerId last = add_input(network, "input", Shape{{{Dim::channel, 1024}}});
  for (std::int64_t i = 0; i < layers; ++i) {
    last = add_layer(network, fmt::format("dense{}", i), Dense{1024}, {last});
  }
  add_layer(network, "loss", Loss{}, {last});
  return network;
}

struct ChainStep {
  Network network;
  Cluster cluster;
  std::unique_ptr<CostModel> cost;
  ExecDag dag;
};

ChainStep chain_step(std::int64_t devices, std::int64_t layers) {
  const std::string machines =
      fmt::format("nodes:{}x8,device=v100-sxm2,intra=400GB/s,inter=25GB/s", devices / 8);
  ChainStep step{chain(layers), topologies::load_cluster(machines, "benchmark"), nullptr, {}};
  step.cost = sim::make_constant_efficiency(step.cluster);
  strategies::StrategyInput input{step.network, step.cluster, *step.cost};
  input.batch = 32 * devices;
  input.sync = Sync::Kind::ring;
  input.bucket = Bytes{0};  // one all-reduce per layer
  step.dag = lowering::lower(step.network, step.cluster, strategies::plan_data(input));
  return step;
}

/// Bytes of all links and the last end, which two engines or two versions must agree on.
double checksum(const Timeline& timeline) {
  double bytes = 0;
  for (const double each : timeline.hop_bytes) bytes += each;
  return bytes * makespan(timeline).count();
}

void simulate_chain(benchmark::State& state, sim::Engine engine, bool merge) {
  const ChainStep step = chain_step(state.range(0), state.range(1));
  sim::SimOptions options;
  options.engine = engine;
  options.merge = merge;
  Timeline timeline;
  for (auto _ : state) {
    const Used before = used();
    timeline = make_simulator(step.cluster, *step.cost, options)->run(step.dag);
    state.SetIterationTime(used().seconds - before.seconds);
  }
  // Every all-reduce moves 2(n-1) · S over two links or, between nodes, four.
  double carried = 0;
  for (const double each : timeline.hop_bytes) carried += each;
  // One of eight hops leaves its node, if there is another, over two links more.
  const double hops = state.range(0) > 8 ? 2 + 2.0 / 8 : 2;
  const double moved = static_cast<double>(bytes_moved(step.dag).value);
  if (std::abs(carried - hops * moved) > 1e-3 * carried) state.SkipWithError("bytes are missing");
  if (!(timeline == make_simulator(step.cluster, *step.cost, options)->run(step.dag))) {
    state.SkipWithError("two runs differ");
  }
  const auto size = static_cast<std::int64_t>(step.dag.size());
  state.counters["ops"] = static_cast<double>(size);
  state.counters["simulated"] = static_cast<double>(size - timeline.merged_operations);
  state.counters["checksum"] = checksum(timeline);
  state.counters["peak_MB"] = used().peak_megabytes;
  state.counters["step_ms"] = makespan(timeline).count() * 1e3;
}
BENCHMARK_CAPTURE(simulate_chain, fast, sim::Engine::fast, true)
    ->ArgsProduct({{8, 64, 256, 4096, 16384}, {160}})
    ->ArgsProduct({{1024}, {10, 20, 40, 80, 160}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate_chain, simgrid, sim::Engine::simgrid, true)
    ->ArgsProduct({{8, 64, 256, 4096, 16384}, {160}})
    ->ArgsProduct({{1024}, {10, 20, 40, 80, 160}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate_chain, fast_every_rank, sim::Engine::fast, false)
    ->ArgsProduct({{1024, 4096}, {160}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate_chain, simgrid_every_rank, sim::Engine::simgrid, false)
    ->ArgsProduct({{8, 64, 256, 4096}, {160}})
    ->ArgsProduct({{1024}, {10, 20, 40, 80, 160}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

/// The opposite of lock-step: every device sends messages of random sizes to random others over
/// four streams, so that all flows are connected by contended links and end at different dates.
void simulate_random_messages(benchmark::State& state, sim::Engine engine) {
  const std::int64_t devices = state.range(0);
  const Cluster cluster = topologies::load_cluster(
      fmt::format("nodes:{}x8,device=v100-sxm2,intra=100GB/s,inter=25GB/s", devices / 8),
      "benchmark");
  const auto cost = sim::make_constant_efficiency(cluster);
  ExecDag dag(Network{}, 1, Precision::fp16, Optimizer::sgd);
  const TensorId tensor = dag.intern(Tensor{Tensor::Kind::parameter, 0, -1});
  std::minstd_rand random(1);
  const auto below = [&](std::int64_t limit) {
    return static_cast<std::int64_t>(random()) % limit;
  };
  constexpr std::array streams{Stream::gradient, Stream::tensor, Stream::pipeline,
                               Stream::pipeline_back};
  for (std::int64_t i = 0; i < 20 * devices; ++i) {
    const auto from = static_cast<std::int32_t>(i % devices);
    const auto to = static_cast<std::int32_t>((from + 1 + below(devices - 1)) % devices);
    const RegionId region = dag.intern(Region{{0, 1'000'000 + below(9'000'000)}});
    const Slice slice{tensor, Role::weight_gradient, 0, region};
    dag.add(Transfer{DeviceId{from}, DeviceId{to}, slice, slice, false},
            streams[static_cast<std::size_t>(below(4))], {});
  }
  sim::SimOptions options;
  options.engine = engine;
  Timeline timeline;
  for (auto _ : state) {
    const Used before = used();
    timeline = make_simulator(cluster, *cost, options)->run(dag);
    state.SetIterationTime(used().seconds - before.seconds);
  }
  options.engine = engine == sim::Engine::fast ? sim::Engine::simgrid : sim::Engine::fast;
  const double other = makespan(make_simulator(cluster, *cost, options)->run(dag)).count();
  const double mine = makespan(timeline).count();
  if (!(std::abs(mine - other) <= 1e-6 * mine)) state.SkipWithError("the engines disagree");
  state.counters["messages"] = static_cast<double>(dag.size());
  state.counters["checksum"] = checksum(timeline);
}
BENCHMARK_CAPTURE(simulate_random_messages, fast, sim::Engine::fast)
    ->Arg(64)
    ->Arg(512)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(simulate_random_messages, simgrid, sim::Engine::simgrid)
    ->Arg(64)
    ->Arg(512)
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

void lower_chain(benchmark::State& state) {
  std::size_t ops = 0;
  for (auto _ : state) ops = chain_step(state.range(0), state.range(1)).dag.size();
  state.counters["ops"] = static_cast<double>(ops);
}
BENCHMARK(lower_chain)->Args({1024, 160})->Args({4096, 160})->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace parsim
