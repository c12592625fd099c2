// Memory over time against lowering::memory_use(), which finds the peak without a timeline.
#include "experiment/memory_over_time.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "experiment/run.hpp"
#include "strategies/strategies.hpp"

namespace parsim::experiment {
namespace {

Run run_of(const Request& request, const std::string& strategy) {
  const Experiment experiment(request);
  return run_plan(experiment, make_plan(experiment, strategies::strategy(strategy, "test")));
}

Bytes peak_of(const std::vector<MemoryChange>& changes) {
  Bytes most{};
  for (const MemoryChange& change : changes) most = std::max(most, change.activations);
  return most;
}

TEST_CASE("memory over time: by hand, a perceptron on one GPU keeps its outputs until backward") {
  Request request;
  request.network = "mlp";
  request.cluster = "star:1,device=t4,rate=12GB/s,latency=1us";
  request.batch = 64;
  const Run run = run_of(request, "data");
  const auto memory = memory_over_time(run.dag, run.timeline, 1, Framework::pytorch);
  REQUIRE(memory.size() == 1);
  // The data, two hidden layers (ReLU works in place) and the logits, all in fp32.
  CHECK(peak_of(memory[0]) == Bytes{64 * 4 * (784 + 1024 + 1024 + 10)});
  CHECK(memory[0].front().at == Seconds{});
  CHECK(memory[0].front().activations == Bytes{64 * 4 * (784 + 1024)});
  CHECK(memory[0].back().activations == Bytes{});
}

/// Peaks of the timeline and of the accounting, which adds the largest gradient.
TEST_CASE("memory over time: law, its peak is that of the accounting") {
  struct Case {
    std::string network, strategy;
    std::int64_t gpus = 1, micro_batches = 1;
    bool exact = true;
    sim::Fusion fusion = sim::Fusion::none;
    std::int32_t chunks = 1;
    bool sequences = false;
  };
  const std::string gpt =
      "gpt:layers=4,hidden=64,heads=4,seq_length=32,vocab_size=128,attention=fused";
  for (const Case& now :
       {Case{"lenet5", "data"}, Case{"alexnet", "data", 2}, Case{"resnet50", "data", 2},
        Case{gpt, "data", 2}, Case{gpt, "pipeline", 4, 8, false}, Case{gpt, "tensor", 2, 1, false},
        Case{gpt, "tensor", 4, 8, false, sim::Fusion::megatron},
        Case{gpt, "tensor", 2, 8, false, sim::Fusion::megatron, 2},
        Case{gpt, "tensor", 4, 1, false, sim::Fusion::none, 1, true}}) {
    CAPTURE(now.network);
    CAPTURE(now.strategy);
    Request request;
    request.network = now.network;
    request.cluster =
        "star:" + std::to_string(now.gpus) + ",device=a100-sxm4-80,rate=25GB/s,latency=1us";
    request.batch = 8 * now.gpus;
    if (now.micro_batches > 1) request.micro_batches = static_cast<std::int32_t>(now.micro_batches);
    request.sim.fusion = now.fusion;
    if (now.sequences) {
      request.tensor_parallel = static_cast<std::int32_t>(now.gpus);
      request.pipeline_parallel = request.micro_batches = 1;
      request.sequence_parallel = true;
    }
    if (now.fusion == sim::Fusion::megatron) {
      request.tensor_parallel = 1;
      request.pipeline_parallel = static_cast<std::int32_t>(now.gpus);
      request.virtual_pipeline = now.chunks;
      request.recompute = strategies::Recompute::full;
    }
    const Run run = run_of(request, now.strategy);
    const auto memory = memory_over_time(run.dag, run.timeline, static_cast<std::size_t>(now.gpus),
                                         sim::framework_of(now.fusion));
    for (std::size_t d = 0; d < memory.size(); ++d) {
      const lowering::MemoryUse& use = run.result.devices[d].memory;
      std::int64_t largest = 0;  // of kernels on the device
      for (std::size_t i = 0; i < run.dag.size(); ++i) {
        const OpRecord& record = run.dag.record(OpId{i});
        const bool own = run.dag.kind(OpId{i}) == OpKind::compute &&
                         record.device == static_cast<std::int32_t>(d);
        if (own) largest = std::max(largest, run.dag.part(WorkId{record.what}).out.volume());
      }
      const std::int64_t expected =
          use.activations.value - 2 * largest * element_bytes(run.dag.precision);
      CHECK(memory[d].back().activations == Bytes{});
      if (now.exact) {
        CHECK(peak_of(memory[d]).value == expected);
      } else {
        // Messages may arrive before what they replace is freed, one at a time, and what is sent is
        // there until it has arrived.
        const std::int64_t sent =
            now.fusion == sim::Fusion::megatron ? largest * element_bytes(run.dag.precision) : 0;
        CHECK(peak_of(memory[d]).value >= 0.8 * static_cast<double>(expected));
        CHECK(peak_of(memory[d]).value <= expected + sent + use.communication.value);
      }
    }
  }
}

TEST_CASE("memory over time: of experts on other GPUs it is not above the accounting") {
  Request request;
  request.network =
      "gpt:layers=4,hidden=64,heads=8,seq_length=64,vocab_size=128,attention=fused,experts=8,"
      "top_k=2";
  request.cluster = "star:8,device=a100-sxm4-80,rate=25GB/s,latency=1us";
  request.batch = 32;
  request.micro_batches = 4;
  struct Degrees {
    std::int32_t tp, pp, dp, ep, cp;
  };
  for (const Degrees& now : {Degrees{1, 2, 4, 4, 1},
                             {1, 1, 8, 8, 1},
                             {1, 4, 2, 2, 1},
                             {2, 1, 4, 4, 1},
                             {1, 2, 2, 2, 2}}) {
    for (const strategies::Recompute what :
         {strategies::Recompute::none, strategies::Recompute::op, strategies::Recompute::full}) {
      CAPTURE(now.ep);
      CAPTURE(now.pp);
      CAPTURE(to_text(what));
      request.tensor_parallel = now.tp;
      request.pipeline_parallel = now.pp;
      request.data_parallel = now.dp;
      request.expert_parallel = now.ep;
      request.context_parallel = now.cp;
      request.context_exchange = strategies::ContextExchange::a2a;
      request.sequence_parallel = now.tp > 1;
      request.recompute = what;
      const Run run = run_of(request, "tensor");
      const auto memory = memory_over_time(run.dag, run.timeline, 8, Framework::pytorch);
      for (std::size_t d = 0; d < memory.size(); ++d) {
        const lowering::MemoryUse& use = run.result.devices[d].memory;
        CHECK(peak_of(memory[d]).value <= use.activations.value + use.communication.value);
      }
    }
  }
}

}  // namespace
}  // namespace parsim::experiment
