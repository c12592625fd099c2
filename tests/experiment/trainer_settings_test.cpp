// Settings of trainers' files that change the step: read, or refused by name.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "core/json.hpp"
#include "experiment/experiment.hpp"
#include "experiment/run.hpp"
#include "experiment/trainer_file.hpp"
#include "experiment/trainer_layout.hpp"
#include "experiment/trainer_run.hpp"
#include "strategies/degrees.hpp"
#include "strategies/price.hpp"
#include "tests/support/program.hpp"
#include "tests/support/refusal.hpp"

namespace parsim::experiment {
namespace {

LayoutFile settings_in(const std::string& text, const std::string& file = "run.sh",
                       const std::string& more = "") {
  Request request;
  request.network = "gpt:layers=8,hidden=64,heads=4,seq_length=32,vocab_size=256" + more;
  request.cluster = "nodes:2x4,device=a100-sxm4-80,intra=300GB/s,inter=25GB/s";
  const Experiment experiment(request);
  return read_trainer_file(text, file, experiment.network, experiment.cluster, 64);
}

std::string setting_refused(const std::string& text, const std::string& file = "run.sh",
                            const std::string& more = "") {
  return testing::refusal_of([&] { (void)settings_in(text, file, more); });
}

TEST_CASE("trainer file: what parts of the tokens exchange") {
  using enum strategies::ContextExchange;
  const std::string titan = "[parallelism]\ncontext_parallel_degree = 4\n",
                    rotate = "context_parallel_rotate_method = ";
  CHECK(settings_in(titan, "t.toml").context_exchange == all_gather);  // torchtitan's default
  CHECK(settings_in(titan + rotate + "\"allgather\"\n", "t.toml").context_exchange == all_gather);
  CHECK(settings_in(titan + rotate + "\"alltoall\"\n", "t.toml").context_exchange == p2p);
  CHECK(settings_in("[parallelism]\n" + rotate + "\"alltoall\"\n", "t.toml").context_exchange ==
        std::nullopt);
  CHECK(setting_refused(titan + rotate + "\"foo\"\n", "t.toml") ==
        "t.toml:3:parallelism.context_parallel_rotate_method: 'foo'; accepted: allgather or "
        "alltoall");
  const std::string scale =
      "system:\n  hetero:\n    hetero_process_meshes: [1, 2, 1, 4, 1]\n"
      "    hetero_pipeline_layer_split: [8]\n";
  CHECK(settings_in(scale, "p.yaml").context_exchange == p2p);  // as of Megatron-LM
  CHECK(settings_in(scale + "  cp_comm_type: a2a\n", "p.yaml").context_exchange == a2a);
  CHECK(setting_refused(scale + "  cp_comm_type: ring\n", "p.yaml") ==
        "p.yaml:5:cp-comm-type: 'ring'; accepted: p2p, all_gather, a2a");
  CHECK(settings_in("x --context-parallel-size 2\n").context_exchange == p2p);
}

TEST_CASE("trainer file: a micro-batch that DeepSpeed leaves \"auto\" is --micro-batches") {
  const std::string batch = "{\"train_batch_size\": 64, ",
                    each = "\"train_micro_batch_size_per_gpu\": ",
                    steps = "\"gradient_accumulation_steps\": ";
  for (const std::string& open :
       {each + "\"auto\"}", each + "\"auto\", " + steps + "\"auto\"}", steps + "\"auto\"}"}) {
    CAPTURE(open);
    const LayoutFile file = settings_in(batch + open, "ds.json");
    CHECK(file.batch == 64);
    CHECK(!file.micro_batches);
  }
  CHECK(settings_in(batch + each + "\"auto\", " + steps + "4}", "ds.json").micro_batches == 4);
  CHECK(settings_in(batch + steps + "4}", "ds.json").micro_batches == 4);
  CHECK(settings_in("{\"train_batch_size\": 64}", "ds.json").micro_batches == 1);
  const testing::TemporaryFolder folder;
  Request request;
  request.network = "resnet18";
  request.cluster = "nodes:2x4,device=a100-sxm4-80,intra=300GB/s,inter=25GB/s";
  request.layout_file = folder.write("ds.json", batch + each + "\"auto\"}");
  CHECK(Experiment(request).request.notes.back().ends_with("; one micro-batch (--micro-batches)"));
  request.micro_batches = 4;
  request.given = {"--micro-batches"};
  CHECK(Experiment(request).request.notes.back().find("micro") == std::string::npos);
}

TEST_CASE("trainer file: DeepSpeed's MiCS is off by default, -1") {
  const auto group = [](const char* size) {
    return settings_in(
               "{\"train_batch_size\": 8, \"zero_optimization\": {\"stage\": 3, "
               "\"mics_shard_size\": " +
                   std::string(size) + "}}",
               "ds.json")
        .zero_group;
  };
  CHECK(group("-1") == std::nullopt);
  CHECK(group("4") == ZeroGroup{4, false});
}

TEST_CASE("trainer file: torchtitan's batch by its former name, or by default with a note") {
  const auto batch = [](const std::string& training) {
    return settings_in("[training]\n" + training + "[parallelism]\n", "t.toml");
  };
  CHECK(batch("batch_size = 2\n").batch == 16);
  CHECK(batch("batch_size = 2\n").notes.empty());
  CHECK(batch("batch_size = 2\nglobal_batch_size = 64\n").micro_batches == 4);
  CHECK(batch("local_batch_size = 2\n").notes.empty());
  CHECK(batch("").batch == 64);
  CHECK(batch("global_batch_size = 128\n").notes ==
        std::vector<std::string>{"t.toml: no training.local_batch_size: torchtitan's default is "
                                 "assumed, 8 samples"});
  CHECK(setting_refused("[training]\nbatch_size = 2\nlocal_batch_size = 4\n[parallelism]\n",
                        "t.toml") ==
        "t.toml:2:training.batch_size: '2'; accepted: one of training.batch_size and "
        "training.local_batch_size");
}

TEST_CASE("trainer file: weights in 16 bits and steps within the backward pass are refused") {
  CHECK(setting_refused("[training]\ndtype = \"bfloat16\"\n[parallelism]\n", "t.toml") ==
        "t.toml:2:training.dtype: 'bfloat16'; accepted: float32");
  CHECK(setting_refused("[training]\ndtype = \"float32\"\n[parallelism]", "t.toml") == "accepted");
  for (const std::string key : {"optimizer.early_step_in_backward", "fault_tolerance.enable"})
    CHECK(setting_refused(key + " = true\n[parallelism]\n", "t.toml") ==
          "t.toml:1:" + key + ": 'true'; accepted: none");
}

TEST_CASE(
    "trainer file: Megatron-LM's attention keeps scores as the network's does, or is refused") {
  const std::string tp = "x --tensor-model-parallel-size 2 --attention-backend ";
  for (const char* kind : {"flash", "fused", "auto"})
    CHECK(setting_refused(tp + kind) == "accepted");
  for (const char* kind : {"unfused", "local"}) {
    CHECK(setting_refused(tp + kind) ==
          "run.sh:1:attention-backend: '" + std::string(kind) +
              "'; accepted: flash, fused or auto; or --network with attention=eager, or "
              "\"attn_implementation\": \"eager\" in config.json");
    CHECK(setting_refused(tp + kind, "run.sh", ",attention=eager") == "accepted");
  }
  CHECK(
      setting_refused(tp + "flash", "run.sh", ",attention=eager") ==
      "run.sh:1:attention-backend: 'flash'; accepted: unfused, local or auto; or --network without "
      "eager attention");
}

TEST_CASE("trainer file: Megatron-LM's local implementation keeps scores with any backend") {
  // Before, it was ignored: 97.6 instead of 124 ms of 8 blocks on 8 H100.
  const std::string local = "x --tensor-model-parallel-size 2 --transformer-impl local";
  for (const char* backend : {"", " --attention-backend flash", " --attention-backend auto"}) {
    CHECK(setting_refused(local + backend) ==
          "run.sh:1:transformer-impl: 'local'; accepted: transformer_engine; or --network with "
          "attention=eager, or \"attn_implementation\": \"eager\" in config.json");
    CHECK(setting_refused(local + backend, "run.sh", ",attention=eager") == "accepted");
  }
  CHECK(setting_refused("x --tensor-model-parallel-size 2 --transformer-impl transformer_engine") ==
        "accepted");
}

TEST_CASE("trainer file: settings of Megatron-LM that nothing here expresses are refused by name") {
  const std::string run = "x --tensor-model-parallel-size 2 --bf16 ";
  const std::string experts = ",experts=8";
  for (const char* name : {"moe-layer-recompute", "moe-pad-expert-input-to-capacity",
                           "overlap-moe-expert-parallel-comm", "delay-wgrad-compute",
                           "moe-shared-expert-overlap", "multi-latent-attention"}) {
    CAPTURE(name);
    CHECK(setting_refused(run + "--" + name, "run.sh", experts)
              .starts_with("run.sh:1:" + std::string(name) +
                           ": a setting that parsim does not know; accepted: "));
  }
  CHECK(setting_refused(run + "--moe-expert-capacity-factor 1.0", "run.sh", experts) ==
        "run.sh:1:moe-expert-capacity-factor: '1.0'; accepted: as many slots as tokens come; "
        "gpt:... has capacity=F");
  CHECK(setting_refused(run + "--window-size 128,0") ==
        "run.sh:1:window-size: '128,0'; accepted: attention to all tokens");
  // Before, it was read as 1F1B, 5 % slower and with a fifth less memory.
  CHECK(
      setting_refused(run + "--enable-zero-bubble") ==
      "run.sh:1:enable-zero-bubble: a setting that parsim does not know; accepted: 1F1B; ZB-H1 and "
      "ZB-H2 are simulated with --strategy tensor --schedule");
  for (const char* name : {"first-last-layers-bf16", "no-fp8-wgrad"}) {
    CHECK(setting_refused(run + "--fp8-format hybrid --" + name) ==
          "run.sh:1:" + std::string(name) +
              ": a setting that parsim does not know; accepted: all blocks and all products in "
              "FP8");
    CHECK(setting_refused(run + "--" + name) == "accepted");  // no FP8, no difference
  }
}

TEST_CASE("trainer file: Megatron-LM's layouts begin with E, end with L, and have its chunks") {
  const auto refused = [](const std::string& layout, const std::string& more = "") {
    return setting_refused("x --pipeline-model-parallel-size 2 --pipeline-model-parallel-layout '" +
                           layout + "' " + more + "\n");
  };
  CHECK(refused("Et*3|t*5L") == "accepted");
  CHECK(refused("E|t*3|t*5|L") == "accepted");
  for (const char* other : {"Lt*4|t*4E", "t*4|t*4", "EEt*4|t*4L", "Et*4|t*4LL", "Et*4L|t*4L"}) {
    CHECK(refused(other) == "run.sh:1:pipeline-model-parallel-layout: '" + std::string(other) +
                                "'; accepted: E first, t for each block, and L last, as Et*5|t*6L");
  }
  const std::string chunks = "--num-virtual-stages-per-pipeline-rank 2";
  CHECK(refused("Et*2|t*2|t*2|t*2L", chunks) == "accepted");
  CHECK(
      refused("Et*4|t*4L", chunks) ==
      "run.sh:1:pipeline-model-parallel-layout: 'Et*4|t*4L'; accepted: 4 stages, in 2 model chunks "
      "of 2 devices each");
}

TEST_CASE("trainer file: stage 3 gathers weights by units, with and without overlap") {
  const std::string stage =
      "{\"train_batch_size\": 64, \"bf16\": {\"enabled\": true}, "
      "\"zero_optimization\": {\"stage\": 3, \"reduce_bucket_size\": 1000, "
      "\"stage3_max_reuse_distance\": 0, \"overlap_comm\": ";
  const std::string note =
      "sums of gradients and gathers of weights do not overlap with kernels there; they do in this "
      "step, which is too short";
  const LayoutFile apart = settings_in(stage + "false}}", "ds.json");
  CHECK(apart.bucket == std::nullopt);
  CHECK(apart.notes == std::vector{"ds.json:1:zero_optimization.overlap_comm: " + note});
  CHECK(settings_in(stage + "true}}", "ds.json").notes.empty());
  const std::string fsdp =
      "x --tensor-model-parallel-size 1 --use-megatron-fsdp --data-parallel-sharding-strategy "
      "optim_grads_params";
  const LayoutFile megatron = settings_in(fsdp);
  CHECK(megatron.bucket == std::nullopt);
  CHECK(megatron.notes == std::vector{"run.sh: no overlap-grad-reduce: " + note});
  CHECK(settings_in(fsdp + " --overlap-grad-reduce").notes.empty());
}

TEST_CASE("trainer file: buckets of gradients have the elements that the file says") {
  const std::string megatron = "x --tensor-model-parallel-size 2 --bf16 --ddp-bucket-size ";
  // In FP32, counted on each of the two GPUs of a tensor-parallel group.
  CHECK(settings_in(megatron + "1000 --overlap-grad-reduce").bucket == Bytes{8000});
  CHECK(settings_in(megatron + "1000").bucket == after_backward);
  CHECK(setting_refused(megatron + "0 --overlap-grad-reduce") ==
        "run.sh:1:ddp-bucket-size: '0'; accepted: 1 to 1e12 elements");
  const auto deepspeed = [](int stage, const std::string& elements) {
    return settings_in(
               "{\"train_batch_size\": 64, \"bf16\": {\"enabled\": true}, "
               "\"zero_optimization\": {\"stage\": " +
                   std::to_string(stage) +
                   ", \"overlap_comm\": true, \"reduce_bucket_size\": " + elements + "}}",
               "ds.json")
        .bucket;
  };
  CHECK(deepspeed(2, "5e8") == Bytes{1'000'000'000});  // in BF16
  CHECK(deepspeed(1, "1000") == Bytes{2000});
  CHECK(deepspeed(1, "\"auto\"") == std::nullopt);
  CHECK(deepspeed(3, "5e8") == std::nullopt);
}

TEST_CASE("trainer file: without a size, gradients have the trainer's own buckets") {
  // Before, PyTorch's 25 MiB: DeepSpeed's steps were 14 % too long or 8 % too short.
  const LayoutFile megatron =
      settings_in("x --tensor-model-parallel-size 2 --bf16 --overlap-grad-reduce");
  CHECK(megatron.bucket == std::nullopt);  // --bucket may say another
  CHECK(megatron.usual_bucket == Bytes{40'000'000 * 2 * 4});
  const auto deepspeed = [](int stage, const std::string& more) {
    return settings_in(
               "{\"train_batch_size\": 64, \"bf16\": {\"enabled\": true}, "
               "\"zero_optimization\": {\"stage\": " +
                   std::to_string(stage) + ", \"overlap_comm\": true" + more + "}}",
               "ds.json")
        .usual_bucket;
  };
  CHECK(deepspeed(2, "") == Bytes{1'000'000'000});
  CHECK(deepspeed(2, ", \"reduce_bucket_size\": \"auto\"") == Bytes{64 * 64 * 2});  // hidden 64
  CHECK(deepspeed(2, ", \"reduce_bucket_size\": 1000") == std::nullopt);
  CHECK(deepspeed(3, "") == Bytes{100'000'000});  // what it gathers ahead
  CHECK(deepspeed(3, ", \"stage3_prefetch_bucket_size\": \"auto\"") == Bytes{64 * 64 * 9 / 10 * 2});
  CHECK(deepspeed(3, ", \"stage3_prefetch_bucket_size\": 0") == Bytes{0});
  CHECK(deepspeed(3, ", \"stage3_max_live_parameters\": 0") == Bytes{0});
  CHECK(deepspeed(3, ", \"stage3_max_live_parameters\": 1e9") == Bytes{100'000'000});
  CHECK(usual_bucket("megatron", 1, {.context = 2, .data = 32}, Precision::fp32) ==
        Bytes{64'000'000 * 4});
  CHECK(usual_bucket("flagscale", 0, {.data = 2}, Precision::bf16) == Bytes{80'000'000});
  CHECK(usual_bucket("torchtitan", 2, {}, Precision::fp32) == strategies::bucket_of_block);
  CHECK(usual_bucket("torchtitan", 0, {}, Precision::fp32) == strategies::ddp_bucket);
  CHECK(usual_bucket("accelerate", 0, {}, Precision::fp32) == strategies::ddp_bucket);
}

TEST_CASE("trainer file: weights that DeepSpeed's stage 3 keeps between passes are said") {
  // Of 0.4 million parameters; half a distance before the loss, half after it.
  const auto notes = [](const std::string& more) {
    return settings_in(
               "{\"train_batch_size\": 64, \"zero_optimization\": {\"stage\": 3, "
               "\"overlap_comm\": true, \"reduce_bucket_size\": 1000" +
                   more + "}}",
               "ds.json")
        .notes;
  };
  const auto note = [](const std::string& where, const std::string& what) {
    return std::vector{where + ": DeepSpeed keeps " + what +
                       " from the forward to the backward pass (stage3_max_reuse_distance); this "
                       "step gathers them twice, so it is too long, and takes too little memory"};
  };
  const std::string key = "stage3_max_reuse_distance";
  CHECK(notes("") == note("ds.json", "all weights"));
  CHECK(notes(", \"" + key + "\": 3e4").empty());
  const std::vector<std::string> some = notes(", \"" + key + "\": 2e5");
  REQUIRE(some.size() == 1);
  CHECK(some[0].starts_with("ds.json:1:zero_optimization." + key + ": DeepSpeed keeps the last 2"));
}

TEST_CASE("trainer file: how DeepSpeed's ZeRO sums gradients and keeps weights") {
  const auto read = [](int stage, const std::string& more) {
    return settings_in(
        "{\"train_batch_size\": 64, \"zero_optimization\": {\"stage\": " + std::to_string(stage) +
            ", \"overlap_comm\": true" + ", \"stage3_max_reuse_distance\": 0" + more + "}}",
        "ds.json");
  };
  const auto notes = [&](int stage, const std::string& more) { return read(stage, more).notes; };
  // The network has 0.4 million parameters, the largest matrices 16,384.
  const std::string small = ", \"reduce_bucket_size\": 1e5", no = "\": false",
                    multi = ", \"use_multi_rank_bucket_allreduce", scatter = ", \"reduce_scatter",
                    keep = ", \"stage3_param_persistence_threshold\": ";
  const std::string sums =
      "DeepSpeed all-reduces gradients; this step has reduce-scatters, which move half the bytes, "
      "and is too short";
  const std::vector<std::string> by_default{
      "ds.json: DeepSpeed all-reduces gradients, unless \"use_multi_rank_bucket_allreduce\" is "
      "false; this step has reduce-scatters, which move half the bytes, and is too short"};
  CHECK(notes(0, scatter + no).empty());
  for (const int stage : {1, 2}) {
    CHECK(notes(stage, "") == by_default);
    CHECK(notes(stage, multi + no).empty());
    CHECK(notes(stage, multi + no + scatter + no) ==
          std::vector{"ds.json:1:zero_optimization.reduce_scatter: " + sums});
    CHECK(notes(stage, keep + "1e9") == by_default);
  }
  CHECK(notes(3, small).empty());
  CHECK(notes(3, small + scatter + no) ==
        std::vector{"ds.json:1:zero_optimization.reduce_scatter: " + sums});
  const std::string one =
      " elements holds all gradients: DeepSpeed sums them after the backward pass; they overlap "
      "with it in this step, which is too short";
  CHECK(notes(3, "") == std::vector{"ds.json: a bucket of 5e+08" + one});
  CHECK(notes(3, ", \"reduce_bucket_size\": 2000000") ==
        std::vector{"ds.json:1:zero_optimization.reduce_bucket_size: a bucket of 2e+06" + one});
  CHECK(notes(3, ", \"reduce_bucket_size\": \"auto\"").empty());
  CHECK(notes(3, small + keep + "\"auto\"").empty());
  CHECK(notes(3, small + keep + "64").empty());
  CHECK(
      testing::refusal_of([&] { (void)read(3, small + keep + "1e9"); }) ==
      "ds.json:1:zero_optimization.stage3_param_persistence_threshold: 1000000000 elements, which "
      "leaves 100 % of the parameters whole on each GPU; accepted: 5 % at most; stage 2 leaves all "
      "whole");
}

TEST_CASE("trainer file: DeepSpeed's gradients that accumulate in FP32 are said") {
  const auto notes = [](const std::string& more) {
    return settings_in(
               "{\"train_batch_size\": 64, \"bf16\": {\"enabled\": true}, \"zero_optimization\": "
               "{\"stage\": 2, \"use_multi_rank_bucket_allreduce\": false}" +
                   more + "}",
               "ds.json")
        .notes;
  };
  const std::string fp32 = ", \"data_types\": {\"grad_accum_dtype\": \"fp32\"}";
  CHECK(notes("").empty());
  CHECK(notes(fp32) ==
        std::vector<std::string>{"ds.json:1:data_types.grad_accum_dtype: gradients accumulate in "
                                 "bf16 here, which takes less memory than in fp32"});
  CHECK(notes(fp32 + ", \"communication_data_type\": \"fp32\"").empty());
}

TEST_CASE("trainer file: torchtitan reduces after every micro-batch, accelerate once a step") {
  CHECK(settings_in("[parallelism]\ndata_parallel_replicate_degree = 2\n", "t.toml").reduce_every ==
        ReduceEvery::micro_batch);
  CHECK(settings_in("x --data-parallel-size 8\n").reduce_every == ReduceEvery::automatic);
  CHECK(settings_in("{\"train_batch_size\": 64}", "ds.json").reduce_every ==
        ReduceEvery::automatic);
  CHECK(reduced_by("accelerate", ReduceEvery::automatic) == ReduceEvery::step);
  CHECK(reduced_by("accelerate", ReduceEvery::micro_batch) == ReduceEvery::micro_batch);
  CHECK(reduced_by("torchtitan", ReduceEvery::step) == ReduceEvery::micro_batch);
}

TEST_CASE(
    "trainer file: kernels between products are the trainer's, unless an option names others") {
  CHECK(settings_in("x --tensor-model-parallel-size 2\n").fusion == sim::Fusion::megatron);
  CHECK(settings_in("{\"train_batch_size\": 64}", "ds.json").fusion == sim::Fusion::none);
  const auto titan = [](const std::string& more) {
    return settings_in("[parallelism]\ntensor_parallel_degree = 1\n" + more, "t.toml").fusion;
  };
  CHECK(titan("") == sim::Fusion::none);
  CHECK(titan("[compile]\nenable = true\n") == sim::Fusion::compiled);
  CHECK(titan("[compile]\nenable = true\ncomponents = [\"loss\"]\n") == sim::Fusion::none);
  CHECK(titan("[compile]\nenable = true\ncomponents = [\"model\"]\n") == sim::Fusion::compiled);
  CHECK(titan("[training]\ncompile = true\n") == sim::Fusion::compiled);
  CHECK(titan("[compile]\nenable = true\nbackend = \"aot_eager\"\n") == sim::Fusion::none);

  const testing::TemporaryFolder folder;
  folder.write("run.sh", "torchrun pretrain_gpt.py --tensor-model-parallel-size 2\n");
  Request request;
  request.network = "gpt:layers=2,hidden=64,heads=4,seq_length=32,vocab_size=256";
  request.cluster = "nodes:1x4,device=a100-sxm4-80,intra=300GB/s";
  request.layout_file = folder.path("run.sh");
  request.batch = 8;
  CHECK(Experiment(request).request.sim.fusion == sim::Fusion::megatron);
  request.sim.fusion = sim::Fusion::compiled;
  request.given = {"--fusion"};
  CHECK(Experiment(request).request.sim.fusion == sim::Fusion::compiled);
}

TEST_CASE("plan file: --fusion decides whose memory counts, else the file") {
  Request request;
  request.network = "gpt:layers=2,hidden=64,heads=4,seq_length=32,vocab_size=256";
  request.cluster = "nodes:1x4,device=a100-sxm4-80,intra=300GB/s";
  request.batch = 8;
  request.sim.fusion = sim::Fusion::megatron;
  const Experiment experiment(request);
  const std::string saved =
      to_json(make_plan(experiment, strategies::strategy("data", "test")).plan);
  const auto framework = [&](sim::Fusion fusion, bool given) {
    request.sim.fusion = fusion;
    request.given.clear();
    if (given) request.given.insert("--fusion");
    return plan_of_file(saved, "p.json", request).framework;
  };
  CHECK(framework(sim::Fusion::none, false) == Framework::megatron);
  CHECK(framework(sim::Fusion::none, true) == Framework::pytorch);
  CHECK(framework(sim::Fusion::megatron, true) == Framework::megatron);
}

TEST_CASE("plan file: kernels are those of its framework, unless --fusion is given") {
  const testing::TemporaryFolder folder;
  folder.write("run.sh",
               "torchrun pretrain_gpt.py --tensor-model-parallel-size 4 --micro-batch-size 8 "
               "--global-batch-size 8 --bf16\n");
  Request request;
  request.network = "gpt:layers=2,hidden=64,heads=4,seq_length=32,vocab_size=256";
  request.cluster = "nodes:1x4,device=a100-sxm4-80,intra=300GB/s";
  request.layout_file = folder.path("run.sh");
  const Experiment experiment(request);
  const Planned planned = make_plan(experiment, layout_strategy());
  const RunResult by_file = run_plan(experiment, planned).result;
  request.layout_file.clear();
  request.plan_file = folder.write("p.json", to_json(planned.plan));
  const auto step = [&] {
    const Experiment saved(request);
    return run_plan(saved, {*saved.plan, {}, {}}).result.step_time;
  };
  CHECK(step() == by_file.step_time);
  request.given = {"--fusion"};
  CHECK(step() > by_file.step_time);
}

TEST_CASE("trainer file: torchtitan's pipelines keep weights and sum gradients at the end") {
  const auto settings = [](const std::string& more) {
    return settings_in("[parallelism]\n" + more, "t.toml");
  };
  const std::string two = "pipeline_parallel_degree = 2\n";
  const std::string at = "fsdp_reshard_after_forward = ";
  CHECK(settings("").zero_stage == 3);
  CHECK(!settings("").bucket);
  for (const std::string reshard : {"", "default", "always", "never"}) {
    CAPTURE(reshard);
    const LayoutFile file = settings(two + (reshard.empty() ? "" : at + '"' + reshard + "\"\n"));
    CHECK(file.zero_stage == 2);
    CHECK(file.bucket == after_backward);
    CHECK(file.notes.size() == (reshard == "always" ? 2 : 1));  // one of the batch
  }
  CHECK(settings(two + at + "\"always\"\n").notes.back() ==
        "t.toml:3:parallelism.fsdp_reshard_after_forward: stages of a pipeline gather weights "
        "again for every backward pass that follows a forward pass; \"never\" is simulated, which "
        "gathers them once, so the step is too short");
}

TEST_CASE("trainer file: accelerate keeps whole gradients, unless the script says otherwise") {
  const testing::TemporaryFolder folder;
  folder.write("a.yaml",
               "distributed_type: FSDP\nnum_processes: 8\nmixed_precision: bf16\nfsdp_config:\n"
               "  fsdp_version: 2\n");
  const auto planned = [&](const std::string& every) {
    Request request;
    request.network = "gpt:layers=8,hidden=64,heads=4,seq_length=32,vocab_size=256";
    request.cluster = "nodes:2x4,device=a100-sxm4-80,intra=300GB/s,inter=25GB/s";
    request.layout_file = folder.path("a.yaml");
    request.batch = 64;
    request.micro_batches = 4;
    request.given = {"--batch", "--micro-batches"};
    if (!every.empty()) {
      request.given.insert("--reduce-every");
      request.reduce_every = from_text<ReduceEvery>(every).value();
    }
    return Experiment(request).request.reduce_every;
  };
  CHECK(planned("") == ReduceEvery::step);
  CHECK(planned("micro-batch") == ReduceEvery::micro_batch);
}

TEST_CASE("trainer file: FSDP 1 without resharding gathers once for accumulated micro-batches") {
  // PyTorch's _should_free_in_backward: without a sum to come, SHARD_GRAD_OP frees nothing. Before,
  // weights were gathered for each of them, which is FSDP 2: 2.5 times the bytes.
  const testing::TemporaryFolder folder;
  const auto planned = [&](const std::string& settings, std::int32_t micro_batches,
                           ReduceEvery every = ReduceEvery::automatic) {
    folder.write("a.yaml",
                 "distributed_type: FSDP\nnum_processes: 8\nmixed_precision: bf16\nfsdp_config:\n"
                 "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n" +
                     settings);
    Request request;
    request.network = "gpt:layers=8,hidden=64,heads=4,seq_length=32,vocab_size=256";
    request.cluster = "nodes:2x4,device=a100-sxm4-80,intra=300GB/s,inter=25GB/s";
    request.layout_file = folder.path("a.yaml");
    request.batch = 64;
    request.micro_batches = micro_batches;
    request.given = {"--batch", "--micro-batches"};
    if (every != ReduceEvery::automatic) request.given.insert("--reduce-every");
    request.reduce_every = every;
    const Experiment experiment(request);
    const Plan plan = make_plan(experiment, layout_strategy()).plan;
    return strategies::degrees_of(experiment.network, plan).zero.value_or(0);
  };
  const std::string one = "  fsdp_sharding_strategy: SHARD_GRAD_OP\n",
                    two = "  fsdp_version: 2\n  fsdp_reshard_after_forward: false\n";
  CHECK(planned(one, 4) == 1);
  CHECK(planned(one, 1) == 2);
  CHECK(planned(one, 4, ReduceEvery::micro_batch) == 2);
  CHECK(planned(two, 4) == 2);
}

TEST_CASE("trainer file: accelerate compiles in any way to train, by a name in any case") {
  // Before, with FSDP and in upper case alone: steps of 8 GPUs were 14 or 22 % too long.
  const auto fusion = [](const std::string& type, const std::string& backend) {
    return settings_in("distributed_type: " + type + "\nnum_processes: 8\nmixed_precision: bf16\n" +
                           "dynamo_config:\n  dynamo_backend: " + backend + "\n",
                       "a.yaml")
        .fusion;
  };
  for (const std::string type : {"MULTI_GPU", "FSDP", "DEEPSPEED"}) {
    CAPTURE(type);
    for (const std::string backend : {"INDUCTOR", "inductor", "Inductor"}) {
      CHECK(fusion(type, backend) == sim::Fusion::compiled);
    }
    for (const std::string backend : {"'no'", "NO", "EAGER"}) {
      CHECK(fusion(type, backend) == sim::Fusion::none);
    }
  }
}

TEST_CASE("trainer file: torchtitan sums gradients in 16 bits with FSDP alone") {
  const auto read = [](const std::string& more, const std::string& reduce = "bfloat16") {
    return settings_in("[training]\nlocal_batch_size = 2\nmixed_precision_reduce = \"" + reduce +
                           "\"\n[parallelism]\n" + more,
                       "t.toml");
  };
  const std::string copies = "data_parallel_replicate_degree = 8\n";
  CHECK(read("").reduce_precision == Precision::bf16);
  CHECK(read("").notes.empty());
  CHECK(read("context_parallel_degree = 8\n").reduce_precision == Precision::bf16);
  CHECK(read(copies).reduce_precision == Precision::fp32);
  CHECK(read(copies).notes ==
        std::vector<std::string>{"t.toml:3:training.mixed_precision_reduce: bfloat16, which "
                                 "nothing reads without FSDP: gradients are summed in fp32"});
  CHECK(read(copies, "float32").notes.empty());
}

TEST_CASE("trainer file: torchtitan's groups and pipelines without FSDP train in FP32") {
  // "Mixed precision training is disabled", it says; read as bf16, steps were 5 times too short.
  const auto read = [](const std::string& more, const std::string& training = "") {
    return settings_in("[training]\nlocal_batch_size = 8\n" + training + "[parallelism]\n" + more,
                       "t.toml");
  };
  const std::string param = "mixed_precision_param = ";
  const std::string note =
      ": torchtitan trains tensor-parallel groups and pipelines in fp32 unless FSDP or context "
      "parallelism shards the weights";
  for (const std::string alone : {"tensor_parallel_degree = 8\n", "pipeline_parallel_degree = 8\n",
                                  "tensor_parallel_degree = 4\npipeline_parallel_degree = 2\n"}) {
    CAPTURE(alone);
    CHECK(read(alone).precision == Precision::fp32);
    CHECK(read(alone).reduce_precision == Precision::fp32);
    CHECK(read(alone).notes == std::vector{"t.toml" + note});
    CHECK(read(alone, param + "\"bfloat16\"\n").notes ==
          std::vector{"t.toml:3:training.mixed_precision_param" + note});
    CHECK(read(alone, param + "\"float32\"\n").notes.empty());
  }
  for (const std::string sharded :
       {"tensor_parallel_degree = 4\n", "tensor_parallel_degree = 4\ncontext_parallel_degree = 2\n",
        "data_parallel_replicate_degree = 8\n", "pipeline_parallel_degree = 4\n"}) {
    CAPTURE(sharded);
    CHECK(read(sharded).precision == Precision::bf16);
    CHECK(read(sharded).notes.empty());
  }
  CHECK(testing::refusal_of([&] {
          (void)read("data_parallel_replicate_degree = 2\ntensor_parallel_degree = 4\n");
        }) ==
        "t.toml:4:parallelism.data_parallel_replicate_degree: '2'; accepted: 1 with other "
        "parallelism, or a data_parallel_shard_degree of 2 or more");
}

TEST_CASE("trainer file: DeepSpeed's bf16 without ZeRO has whole states and gradients in bf16") {
  const auto text = [](int stage, const std::string& type) {
    return "{\"train_batch_size\": 64, \"bf16\": {\"enabled\": true}, \"zero_optimization\": "
           "{\"stage\": " +
           std::to_string(stage) + "}, \"data_types\": {\"grad_accum_dtype\": \"" + type + "\"}}";
  };
  CHECK(settings_in(text(0, "bf16"), "ds.json").zero_stage == 0);
  CHECK(settings_in(text(0, "bf16"), "ds.json").reduce_precision == Precision::bf16);
  CHECK(setting_refused(text(0, "fp32"), "ds.json") ==
        "ds.json:1:data_types.grad_accum_dtype: 'fp32'; accepted: bf16, as the weights, or ZeRO");
  CHECK(setting_refused(text(1, "fp32"), "ds.json") == "accepted");
}

}  // namespace
}  // namespace parsim::experiment
