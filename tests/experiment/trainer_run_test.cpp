// Plans as trainers run them: whose steps searches choose by, and what a trainer's file is compared
// with.
#include "experiment/trainer_run.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "core/timeline.hpp"
#include "experiment/comparison.hpp"
#include "experiment/run.hpp"
#include "lowering/memory.hpp"
#include "tests/support/program.hpp"

namespace parsim::experiment {
namespace {

Request of_four_blocks() {
  Request request;
  request.network = "gpt:layers=4,hidden=1024,heads=16,seq_length=256,vocab_size=1024";
  request.cluster = "nodes:2x2,device=a100-sxm4-80,intra=300GB/s,inter=10GB/s";
  return request;
}

TEST_CASE(
    "trainer run: plans without ZeRO, compared with a file of DeepSpeed, sum after the backward "
    "pass") {
  const testing::TemporaryFolder folder;
  Request request = of_four_blocks();
  request.layout_file =
      folder.write("ds.json",
                   "{\"train_batch_size\": 16, \"bf16\": {\"enabled\": true}, "
                   "\"zero_optimization\": {\"stage\": 3, \"overlap_comm\": true}}");
  const auto plan = [&] {
    return make_plan(Experiment(request), strategies::strategy("data", "test")).plan;
  };
  const Plan whole = plan();
  CHECK(whole.buckets.size() == 1);
  const Experiment experiment(request);
  CHECK(simulated_step(experiment, whole) ==
        simulated_step(experiment, run_by("deepspeed", experiment, whole)));
  CHECK(run_by("megatron", experiment, whole).buckets.size() > 1);
  request.zero_stage = 1;  // which it overlaps, in buckets of 500 million elements
  CHECK(plan().buckets.size() == 1);
  request.network = "gpt:layers=4,hidden=4096,heads=16,seq_length=256,vocab_size=1024";
  CHECK(plan().buckets.size() == 2);  // of 810 million
  request.zero_stage.reset();
  request.given = {"--bucket"};
  CHECK(plan().buckets.size() > 1);
}

TEST_CASE("trainer run: a search chooses by the step of the trainer that is to run the plan") {
  Request request = of_four_blocks();
  request.batch = 16;
  const Experiment any(request);
  const Plan plan = make_plan(any, strategies::strategy("data", "test")).plan;
  CHECK(searched(any, plan) == plan);
  request.launcher = "deepspeed";
  const Experiment launched(request);
  CHECK(searched(launched, plan) == run_by("deepspeed", any, plan));
  CHECK(searched(launched, plan) != plan);
  // The plan that is written keeps its buckets: the file does not carry them.
  CHECK(make_plan(launched, strategies::strategy("data", "test")).plan == plan);
}

TEST_CASE("trainer run: torchtitan keeps gathered tokens unless they are computed again") {
  const testing::TemporaryFolder folder;
  const auto planned = [&](const std::string& mode) {
    Request request = of_four_blocks();
    request.cluster = "nodes:1x4,device=a100-sxm4-80,intra=300GB/s";
    request.layout_file = folder.write(
        "t.toml",
        "[training]\nlocal_batch_size = 8\n[optimizer]\nname = \"AdamW\"\n"
        "[parallelism]\ntensor_parallel_degree = 4\n[activation_checkpoint]\nmode = \"" +
            mode + "\"\n");
    const Experiment experiment(request);
    Plan plan = make_plan(experiment, layout_strategy()).plan;
    CHECK(run_by("torchtitan", experiment, plan) == plan);
    return std::tuple{experiment.network, experiment.cluster, std::move(plan)};
  };
  const auto [network, cluster, kept] = planned("none");
  CHECK(std::none_of(kept.layers.begin(), kept.layers.end(),
                     [](const LayerPlan& layer) { return layer.regather; }));
  // Before, every GPU kept a quarter of what two norms of each of four blocks and the last one
  // made: 8 samples of 256 tokens of 1024 numbers of 4 bytes, for without FSDP
  // torchtitan trains in FP32.
  Plan dropped = kept;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    dropped.layers[l].regather = network.layers[l].kind.as<Norm>() != nullptr;
  }
  CHECK(static_cast<double>(lowering::memory_use(network, cluster, kept)[0].activations.value -
                            lowering::memory_use(network, cluster, dropped)[0].activations.value) ==
        9 * 0.75 * 8 * 256 * 1024 * 4);
  const Plan full = std::get<Plan>(planned("full"));
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    if (network.layers[l].kind.as<Norm>() == nullptr) continue;
    CHECK(full.layers[l].regather == full.layers[l].recompute);
  }
}

TEST_CASE("trainer run: trainers that gather all scores hold them on every GPU of a group") {
  // Of 256 tokens and 32768 words 12 B each, in bf16; before, a quarter of them counted.
  constexpr double scores = 256.0 * 32768 * 12;
  const testing::TemporaryFolder folder;
  const auto ran = [&](const std::string& file, const std::string& text) {
    Request request;
    request.network = "gpt:layers=2,hidden=64,heads=4,seq_length=256,vocab_size=32768";
    request.cluster = "nodes:1x8,device=a100-sxm4-80,intra=300GB/s";
    request.layout_file = folder.write(file, text);
    request.optimizer = Optimizer::adam;
    if (file.ends_with(".yaml")) {
      request.batch = 2;
      request.given = {"--batch", "--optimizer"};
    }
    const Experiment experiment(request);
    return run_plan(experiment, make_plan(experiment, layout_strategy())).result;
  };
  const std::string titan =
      "[training]\nlocal_batch_size = 1\n[optimizer]\nname = \"AdamW\"\n[parallelism]\n"
      "tensor_parallel_degree = 4\ndisable_loss_parallel = ";
  const auto peak = [](const RunResult& run) {
    return static_cast<double>(run.devices.front().peak().value);
  };
  const RunResult parts = ran("t.toml", titan + "false\n"), whole = ran("t.toml", titan + "true\n");
  CHECK(peak(whole) - peak(parts) > 0.75 * 0.95 * scores);
  CHECK(peak(whole) - peak(parts) < 1.25 * scores);
  CHECK(whole.step_time > parts.step_time);
  // transformers holds the whole embedding, too: of two replicas each has half of its states, and
  // the weights are gathered.
  const RunResult accelerate =
      ran("a.yaml",
          "distributed_type: FSDP\nnum_processes: 8\nmixed_precision: bf16\nfsdp_config:\n"
          "  fsdp_version: 2\n  fsdp_auto_wrap_policy: "
          "TRANSFORMER_BASED_WRAP\nparallelism_config:\n  parallelism_config_tp_size: 4\n"
          "  parallelism_config_dp_shard_size: 2\n");
  CHECK(peak(accelerate) > peak(parts) + 0.75 * 0.95 * scores + 12 * 0.375 * 64 * 32768);
  // So does DeepSpeed's AutoTP, by the same plans, with whole weights.
  const RunResult deepspeed = ran("ds.json",
                                  "{\"train_micro_batch_size_per_gpu\": 1, \"bf16\": {\"enabled\": "
                                  "true}, \"tensor_parallel\": {\"autotp_size\": 4}}");
  CHECK(peak(deepspeed) > peak(parts) + 0.75 * 0.95 * scores + 12 * 0.375 * 64 * 32768);
}

TEST_CASE("trainer run: transformers' groups sum a gradient for each product that reads it") {
  // Of 2 x 256 tokens and 64 channels in bf16. Before, once for queries, keys and values: on PCIe
  // steps of Llama were a fourth too short.
  constexpr double sum = 2 * 3.0 / 4 * 4 * 2 * 256 * 64 * 2;  // four GPUs' all-reduce
  const testing::TemporaryFolder folder;
  const auto ran = [&](const std::string& file, const std::string& text, int blocks) {
    Request request;
    request.network = "gpt:layers=" + std::to_string(blocks) +
                      ",hidden=64,heads=4,seq_length=256,vocab_size=256,"
                      "positions=none";
    request.cluster = "nodes:1x4,device=a100-pcie";
    request.layout_file = folder.write(file, text);
    if (file != "run.sh") {
      request.optimizer = Optimizer::adam;
      request.batch = 2;
      request.given = {"--batch", "--optimizer"};
    }
    const Experiment experiment(request);
    return run_plan(experiment, make_plan(experiment, layout_strategy()));
  };
  const auto sums = [&](const std::string& file, const std::string& text) {
    const auto moved = [&](int blocks) {
      return static_cast<double>(ran(file, text, blocks).result.moved.value);
    };
    return (moved(3) - moved(2)) / sum;
  };
  const std::string yaml =
      "distributed_type: MULTI_GPU\nnum_processes: 4\nmixed_precision: bf16\n"
      "parallelism_config:\n  parallelism_config_tp_size: 4\n";
  const std::string json =
      "{\"train_batch_size\": \"auto\", \"bf16\": {\"enabled\": true}, "
      "\"tensor_parallel\": {\"autotp_size\": 4}}";
  CHECK(sums("a.yaml", yaml) == 6);  // two in the forward pass
  CHECK(sums("ds.json", json) == 6);
  CHECK(sums("run.sh",
             "x --tensor-model-parallel-size 4 --bf16 --micro-batch-size 2 "
             "--global-batch-size 2\n") == 4);
  // No kernel of a pass runs meanwhile.
  for (const auto& [file, text] : {std::pair{"a.yaml", yaml}, std::pair{"ds.json", json}}) {
    const Run run = ran(file, text, 3);
    std::int64_t meanwhile = 0;
    for (std::size_t i = 0; i < run.dag.size(); ++i) {
      if (run.dag.kind(OpId{i}) != OpKind::collective) continue;
      const Span& sum_span = run.timeline.spans[i];
      for (std::size_t k = 0; k < run.dag.size(); ++k) {
        const Span& kernel = run.timeline.spans[k];
        const bool overlaps = kernel.start < sum_span.end && sum_span.start < kernel.end;
        if (overlaps && run.dag.kind(OpId{k}) == OpKind::compute) ++meanwhile;
      }
    }
    CHECK(meanwhile == 0);
  }
}

}  // namespace
}  // namespace parsim::experiment
