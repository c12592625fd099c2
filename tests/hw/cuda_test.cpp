// The CUDA engine on emulated GPUs: what it puts on streams, in which order, and what comes out.
#include <doctest/doctest.h>

#include <array>
#include <set>
#include <string>

#include "hw/calibrate.hpp"
#include "hw/cuda_executor.hpp"
#include "hw/memory_plan.hpp"
#include "hw/remote_slices.hpp"
#include "lowering/lower.hpp"
#include "sim/sim.hpp"
#include "strategies/strategies.hpp"
#include "tests/hw/emulated/settings.hpp"
#include "tests/hw/executors.hpp"
#include "tests/hw/runnable.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/on_all_devices.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/refusal.hpp"
#include "tests/support/tiny_networks.hpp"
#include "tests/support/zero_groups.hpp"

namespace parsim::testing {
namespace {

/// The machine of a test; afterwards it is the usual one.
class Emulated {
 public:
  explicit Emulated(const emulated::Settings& settings) {
    emulated::settings() = settings;
    emulated::restart();
  }
  ~Emulated() { emulated::settings() = {}; }
  Emulated(const Emulated&) = delete;
  Emulated& operator=(const Emulated&) = delete;
};

/// How often devices take part in an operation of others, too.
std::int64_t meetings(const ExecDag& dag) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    if (!hw::remote_slices(dag, OpId{i}).empty()) sum += std::ssize(hw::devices_of(dag, OpId{i}));
  }
  return sum;
}

/// Attention of four heads of eight channels, the least that cuDNN's kernels know.
Network heads_of_eight(std::int64_t key_heads, bool causal) {
  Network net{"heads", {}, {}, {}};
  LayerId x = add_input(net, "vectors", Shape{{{Dim::token, 5}, {Dim::channel, 12}}});
  const LayerId query = add_layer(net, "query", Dense{32}, {x});
  const LayerId key = add_layer(net, "key", Dense{8 * key_heads}, {x});
  const LayerId value = add_layer(net, "value", Dense{8 * key_heads}, {x});
  x = add_layer(net, "attention", Attention{4, key_heads, causal}, {query, key, value});
  x = add_layer(net, "out", Dense{6}, {x});
  x = add_layer(net, "flatten", Flatten{}, {x});
  x = add_layer(net, "classifier", Dense{3}, {x});
  add_layer(net, "loss", Loss{}, {x});
  return net;
}

}  // namespace

TEST_CASE("cuda: any valid plan computes the host's numbers, on partitions of one GPU") {
  const std::vector<Network> networks = runnable_networks();
  const std::uint64_t end = long_tests() ? 48 : 12;
  for (std::uint64_t seed = 0; seed < end; ++seed) {
    const Network& network = networks[seed % networks.size()];
    const Emulated machine({.seed = static_cast<unsigned>(seed)});
    const std::size_t gpus = 1 + seed / networks.size() % 3;
    const ExecDag dag =
        lowering::lower(network, star_of(gpus + 1, "10 GB/s", "1us"),
                        with_split_states(random_plan(network, gpus, 8, seed), seed));
    CAPTURE(network.name);
    CAPTURE(seed);
    emulated::nccl_calls().clear();
    CHECK(hw::CudaExecutor({32, 16, 16, 8}).check(dag) == "");
    CHECK(emulated::nccl_calls().empty());
  }
}

TEST_CASE("cuda: any valid plan computes the host's numbers on several GPUs, NCCL carries all") {
  const std::vector<Network> networks = runnable_networks();
  std::set<std::string> functions;
  const std::uint64_t end = long_tests() ? 170 : 150;  // 143 has much larger shares than others
  for (std::uint64_t seed = long_tests() ? 130 : 138; seed < end; ++seed) {
    const Network& network = networks[seed % networks.size()];
    const Emulated machine({.gpus = 4, .seed = static_cast<unsigned>(seed)});
    const std::size_t gpus = 1 + seed / networks.size() % 3;
    const ExecDag dag =
        lowering::lower(network, star_of(gpus + 1, "10 GB/s", "1us"),
                        with_split_states(random_plan(network, gpus, 8, seed), seed));
    CAPTURE(network.name);
    CAPTURE(seed);
    emulated::nccl_calls().clear();
    CHECK(hw::CudaExecutor({}).check(dag) == "");
    // A step in memory of its own and one that reuses memory.
    CHECK(emulated::nccl_calls()["group"] == 2 * meetings(dag));
    for (const auto& [name, calls] : emulated::nccl_calls()) functions.insert(name);
  }
  CHECK(functions == std::set<std::string>{"group", "ncclAllGather", "ncclAllReduce",
                                           "ncclBroadcast", "ncclRecv", "ncclReduce",
                                           "ncclReduceScatter", "ncclSend"});
}

TEST_CASE("cuda: replicas that split states in groups compute the host's numbers") {
  const std::vector<Network> networks = runnable_networks();
  int grouped = 0;
  const std::uint64_t end = long_tests() ? 240 : 210;
  for (std::uint64_t seed = 200; seed < end; ++seed) {
    const Network& network = networks[seed % networks.size()];
    const bool parts = seed % 4 < 2;
    const Emulated machine({.gpus = parts ? 1 : 4, .seed = static_cast<unsigned>(seed)});
    const Cluster cluster = star_of(4, "10 GB/s", "1us");
    Plan plan = with_split_states(random_replicated_plan(network, 4, 8, seed), seed);
    plan = with_zero_groups(std::move(plan), network, cluster, seed);
    for (LayerPlan& layer : plan.layers) layer.sync = {};  // no server beside the four
    const ExecDag dag = lowering::lower(network, cluster, plan);
    for (std::size_t i = 0; i < dag.size(); ++i) {
      if (dag.stream(OpId{i}) != Stream::replicas) continue;
      ++grouped;
      break;
    }
    CAPTURE(network.name);
    CAPTURE(seed);
    CHECK(hw::CudaExecutor(parts ? std::vector{32, 16, 16, 8} : std::vector<int>{}).check(dag) ==
          "");
  }
  CHECK(grouped > (long_tests() ? 5 : 1));
}

TEST_CASE("cuda: sums of another type than the weights' are refused, not done otherwise") {
  const Emulated machine({.gpus = 2});
  hw::CudaExecutor gpu({});
  const Network network = tiny_network("residual");
  const Cluster cluster = star_of(2, "10 GB/s", "1us");
  const auto cost = sim::make_constant_efficiency(cluster);
  strategies::StrategyInput input{network, cluster, *cost};
  input.batch = 8;
  ExecDag dag =
      lowering::lower(network, cluster, plan_on_all_devices(strategies::all().front(), input));
  dag.precision = Precision::bf16;
  CHECK(refusal_of([&] { static_cast<void>(gpu.check(dag)); }) ==
        "--reduce-precision: fp32 with bf16; accepted on CUDA: bf16");
}

TEST_CASE("cuda: norms and pools of eight channels at a time equal the host's numbers") {
  const Network network = pooled_network();
  const Cluster cluster = star_of(3, "10 GB/s", "1us");
  const auto cost = sim::make_constant_efficiency(cluster);
  for (const char* name : {"data", "model", "layer-wise"}) {
    strategies::StrategyInput input{network, cluster, *cost};
    input.batch = 6;
    ExecDag dag = lowering::lower(network, cluster,
                                  plan_on_all_devices(strategies::strategy(name, "test"), input));
    for (const Precision precision : {Precision::fp32, Precision::bf16}) {
      const Emulated machine({.gpus = 1, .seed = 7});
      dag.precision = dag.reduce_precision = precision;
      CAPTURE(name);
      CAPTURE(to_text(precision));
      hw::CudaExecutor gpus(std::vector{32, 24, 16});
      CHECK(gpus.check(dag) == "");
    }
  }
}

TEST_CASE("cuda: every strategy's step in every precision equals the host's numbers") {
  const Cluster cluster =
      star_of({test_device("fast", "10 TFLOP/s"), test_device("slow", "4 TFLOP/s"),
               test_device("slower", "2 TFLOP/s")},
              "10 GB/s", "1us");
  const auto cost = sim::make_constant_efficiency(cluster);
  constexpr std::array precisions{Precision::fp32, Precision::tf32, Precision::bf16,
                                  Precision::fp16};
  unsigned seed = 0, pairs = 0;
  for (const Network& network :
       {tiny_network("residual"), tiny_network("volume"), tiny_network("tokens"),
        tiny_network("attention"), tiny_llama(true)}) {
    for (const strategies::Strategy& strategy : strategies::all()) {
      if (strategy.name == "best") continue;  // one of the others' plans with changes
      // Every fourth plan in one of the precisions in turn, on parts of a GPU or on GPUs; else all
      // plans in all precisions.
      const unsigned pair = pairs++;
      if (!long_tests() && pair % 4 != 0) continue;
      strategies::StrategyInput input{network, cluster, *cost};
      input.batch = 8;
      input.budget = 20;
      ExecDag dag = lowering::lower(network, cluster, plan_on_all_devices(strategy, input));
      for (unsigned i = 0; i < precisions.size(); ++i) {
        if (!long_tests() && i != pair / 4 % precisions.size()) continue;
        const bool parts = (pair / 4 / precisions.size() + i) % 2 == 0;
        const Emulated machine({.gpus = parts ? 1 : 3, .seed = seed++});
        dag.precision = precisions[i];
        dag.reduce_precision = storage_of(precisions[i]);
        CAPTURE(network.name);
        CAPTURE(strategy.name);
        CAPTURE(to_text(precisions[i]));
        hw::CudaExecutor gpus(parts ? std::vector{32, 24, 16} : std::vector<int>{});
        CHECK(gpus.check(dag) == "");
      }
    }
  }
}

TEST_CASE("cuda: attention in 16 bits is fused where cuDNN can, and equals the host's numbers") {
  const Cluster cluster = star_of(3, "10 GB/s", "1us");
  std::uint64_t seed = 0;
  const auto graphs_of = [&](ExecDag dag, Precision precision) {
    const Emulated machine({.gpus = 3, .seed = static_cast<unsigned>(seed)});
    dag.precision = precision;
    dag.reduce_precision = storage_of(precision);
    emulated::attention_graphs() = 0;
    const bool parts = seed++ % 2 == 0;
    CHECK(hw::CudaExecutor(parts ? std::vector{32, 24, 16} : std::vector<int>{}).check(dag) == "");
    return emulated::attention_graphs();
  };
  for (const std::int64_t key_heads : {4, 2, 1}) {
    for (const bool causal : {true, false}) {
      const Network network = heads_of_eight(key_heads, causal);
      CAPTURE(key_heads);
      CAPTURE(causal);
      CAPTURE(seed);
      const ExecDag whole = lowering::lower(network, cluster, single_device_plan(network, 8));
      // Forward and backward, with all tensors kept and with memory reused.
      CHECK(graphs_of(whole, causal ? Precision::bf16 : Precision::fp16) == 4);
      if (key_heads == 4) CHECK(graphs_of(whole, Precision::tf32) == 0);
      // What is cut by samples or heads is fused, by tokens not always.
      const Plan plan = with_split_states(random_plan(network, 2, 8, seed), seed);
      static_cast<void>(graphs_of(lowering::lower(network, cluster, plan),
                                  causal ? Precision::fp16 : Precision::bf16));
    }
  }
}

TEST_CASE("cuda: attention that cuDNN has no engine for goes by its scores") {
  ExecDag dag = lowering::lower(heads_of_eight(2, true), star_of(1, "10 GB/s", "1us"),
                                single_device_plan(heads_of_eight(2, true), 8));
  dag.precision = dag.reduce_precision = Precision::bf16;
  const Emulated machine({.attention = false});
  emulated::attention_graphs() = 0;
  CHECK(hw::CudaExecutor({}).check(dag) == "");
  CHECK(emulated::attention_graphs() == 0);
}

TEST_CASE("cuda: on parts of a GPU and on several, the step of every executor keeps its order") {
  const hw::LinkThrottle link{BytesPerSecond{1e9}, Seconds{20e-6}};
  for (const std::vector<int>& parts : {std::vector{32, 16, 16, 8}, {}, std::vector{32, 16}}) {
    const ExecDag dag = step_for_executors(parts.empty() ? 4 : parts.size());
    const Emulated machine({.gpus = 4});
    hw::CudaExecutor gpus(parts, link);
    std::vector<Seconds> least(dag.size());  // of kernels nothing is known but that they take time
    for (std::size_t i = 0; i < dag.size(); ++i) {
      const OpKind kind = dag.kind(OpId{i});
      if (kind != OpKind::transfer && kind != OpKind::collective) continue;
      if (kind == OpKind::transfer && dag.record(OpId{i}).device == dag.record(OpId{i}).to)
        continue;
      least[i] = hw::modelled_duration(dag, OpId{i}, gpus.hardware().machine);
    }
    CAPTURE(parts);
    const std::vector<Span> spans = expect_step(gpus, dag, least);
    CHECK(gpus.step(dag, 3).timeline.spans == spans);
  }
}

TEST_CASE("cuda: a step is measured as a graph, and where none can be captured from streams") {
  const Network network = tiny_network("residual");
  const ExecDag dag =
      lowering::lower(network, star_of(4, "10 GB/s", "1us"), random_plan(network, 3, 8, 5));
  const auto measured = [&](bool captures) {
    const Emulated machine({.captures = captures});
    return hw::CudaExecutor({32, 16, 16, 8}).step(dag, 3);
  };
  const Measurement graph = measured(true);
  const Measurement streams = measured(false);
  CHECK(graph.step.samples == 3);
  CHECK(graph.step.low == graph.step.high);
  // The host issues kernel after kernel: longer than the kernels take.
  CHECK(streams.step.median > 1.1 * graph.step.median);
  // Timed operations do not wait for any issuing thread, either way.
  REQUIRE(graph.timeline.spans.size() == dag.size());
  CHECK(graph.step_with_events.median == graph.step.median);
  CHECK(streams.timeline.spans == graph.timeline.spans);
}

TEST_CASE("cuda: partitions are looked at, and graphs that forget them are not used") {
  {
    const Emulated machine({.streams_keep = false});
    CHECK_THROWS_WITH_AS(static_cast<void>(hw::CudaExecutor({32, 16})),
                         "--partition: kernels of part 0 (from 0) ran on 132 multiprocessors, it "
                         "has 32",
                         hw::HardwareError);
  }
  const Network network = tiny_network("residual");
  const ExecDag dag =
      lowering::lower(network, star_of(4, "10 GB/s", "1us"), random_plan(network, 3, 8, 5));
  const auto measured = [&](bool captures, emulated::Graphs graphs) {
    const Emulated machine({.captures = captures, .graphs = graphs});
    return hw::CudaExecutor({32, 16, 16, 8}).step(dag, 3).step.median;
  };
  const Seconds by_streams = measured(false, emulated::Graphs::keep);
  CHECK(measured(true, emulated::Graphs::forget) == by_streams);
  CHECK(measured(true, emulated::Graphs::move) == by_streams);
  CHECK(measured(true, emulated::Graphs::keep) < by_streams);
  // Parts of one size: only which multiprocessors tells. Profiles of the two kinds differ.
  const auto versions = [](emulated::Graphs graphs) {
    const Emulated machine({.graphs = graphs});
    return hw::CudaExecutor({16, 16}).hardware().machine.versions;
  };
  CHECK(versions(emulated::Graphs::move).back().name == "graphs");
  CHECK(versions(emulated::Graphs::keep).back().name == "NCCL");
}

TEST_CASE("cuda: throttled messages take their time") {
  const Emulated machine({});
  const hw::LinkThrottle link{BytesPerSecond{1e9}, Seconds{20e-6}};
  hw::CudaExecutor gpu({64, 64}, link);
  const ExecDag dag = hw::link_dag(2, {Bytes{1 << 12}, Bytes{1 << 16}});
  std::vector<OpId> ops;
  for (std::size_t i = 0; i < dag.size(); ++i) ops.emplace_back(i);
  const std::vector<Spread> times = gpu.alone(dag, ops, 3);
  for (const OpId op : ops) {
    const double ratio =
        times[op.index()].median / hw::modelled_duration(dag, op, gpu.hardware().machine);
    CHECK(ratio >= 1);
    CHECK(ratio < 1.1);
    CHECK(times[op.index()].samples == 3);
  }
  // What takes 20 ms is measured less often than what takes 20 us.
  const hw::LinkThrottle slow{BytesPerSecond{2e8}, Seconds{}};
  hw::CudaExecutor patient({64, 64}, slow);
  const ExecDag two = hw::link_dag(2, {Bytes{1 << 12}, Bytes{1 << 22}});
  const std::vector<Spread> spreads = patient.alone(two, {OpId{0}, OpId{two.size() - 1}}, 30);
  CHECK(std::max(spreads[0].samples, spreads[1].samples) == 30);
  CHECK(std::min(spreads[0].samples, spreads[1].samples) == 5);
}

TEST_CASE("cuda: neighbours that share nothing do not hold each other up") {
  const Network network = tiny_network("residual");
  const ExecDag dag =
      lowering::lower(network, star_of(3, "10 GB/s", "1us"), random_plan(network, 2, 8, 3));
  const Emulated machine({.memory = std::size_t{1} << 26, .numbers = false});
  hw::CudaExecutor gpu({64, 32, 16});
  const Profile profile = hw::calibrate(gpu, {dag}, 3);
  REQUIRE_FALSE(profile.interference_samples.empty());
  for (const auto& sample : profile.interference_samples) {
    CHECK(sample.during.median / sample.alone.median == testing::approx(1).epsilon(0.01));
  }
}

TEST_CASE("cuda: Adam's step equals the host's in every precision") {
  const Network network = tiny_llama(false);
  ExecDag dag =
      lowering::lower(network, star_of(1, "10 GB/s", "1us"), single_device_plan(network, 8));
  dag.optimizer = Optimizer::adam;
  for (const Precision precision :
       {Precision::fp32, Precision::tf32, Precision::bf16, Precision::fp16}) {
    const Emulated machine({});
    dag.precision = precision;
    dag.reduce_precision = storage_of(precision);
    CAPTURE(static_cast<int>(precision));
    CHECK(hw::CudaExecutor({}).check(dag) == "");
  }
}

TEST_CASE("cuda: a step that fits because tensors share memory runs, and says what it took") {
  const Network network = tiny_network("residual");
  const ExecDag dag =
      lowering::lower(network, star_of(1, "10 GB/s", "1us"), single_device_plan(network, 2048));
  const hw::Stores stores = hw::stores(dag);
  const hw::Dispatch order = hw::dispatch(dag);
  const auto planned = [&](bool reuse) {
    const hw::MemoryPlan plan = hw::plan_memory(dag, order, stores, 4, 256, {reuse, false});
    return static_cast<std::int64_t>(plan.devices[0].total);
  };
  const auto taken = [&](std::size_t memory) {
    const Emulated machine({.memory = memory, .numbers = false});
    return hw::CudaExecutor({}).step(dag, 1).device_bytes;
  };
  const std::vector<std::int64_t> bytes = taken(std::size_t{1} << 30);
  REQUIRE(bytes.size() == 1);
  CHECK(bytes[0] >= planned(true));
  // Workspaces and sums are small here.
  CHECK(bytes[0] < planned(false) * 3 / 4);
  constexpr std::int64_t spare = std::int64_t{1} << 16;
  CHECK(taken(static_cast<std::size_t>(bytes[0] + spare)) == bytes);
  CHECK_THROWS_AS(static_cast<void>(taken(static_cast<std::size_t>(bytes[0] / 2))),
                  hw::MemoryError);
}

TEST_CASE("cuda: what the machine cannot do is a sentence") {
  const auto reason = [](const emulated::Settings& settings, const std::vector<int>& partition) {
    const Emulated machine(settings);
    try {
      static_cast<void>(hw::CudaExecutor(partition));
    } catch (const hw::HardwareError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  CHECK(reason({.driver = 0}, {}) == "no NVIDIA driver on this machine (CUDA runtime 13000)");
  CHECK(reason({.driver = 12000}, {}) ==
        "the driver (CUDA 12000) is older than the CUDA runtime 13000");
  CHECK(reason({.gpus = 0}, {}).starts_with("no GPU: "));
  CHECK(reason({}, {64, 60}) == "--partition: 60; this GPU gives multiples of 8, 128 in all");
  CHECK(reason({}, {64, 56, 16}) == "--partition: 8 multiprocessors are left, 16 are asked for");
  CHECK(reason({}, {64, 32, 16, 8, 8}) == "");
  const Network network = tiny_network("plain");
  const ExecDag dag =
      lowering::lower(network, star_of(1, "10 GB/s", "1us"), single_device_plan(network, 8));
  const Emulated small({.memory = std::size_t{1} << 12});
  CHECK_THROWS_AS(static_cast<void>(hw::CudaExecutor({}).run(dag)), hw::MemoryError);
}

}  // namespace parsim::testing
