// Files of trainers: read back as written, by hand, and refused by key.
#include "experiment/trainer_file.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/errors.hpp"
#include "experiment/experiment.hpp"
#include "strategies/blocks.hpp"
#include "tests/support/program.hpp"
#include "tests/support/refusal.hpp"

namespace parsim::experiment {
namespace {

const std::string eight_gpus = "nodes:2x4,device=a100-sxm4-80,intra=300GB/s,inter=25GB/s";
const std::string eight_blocks = "gpt:layers=8,hidden=64,heads=4,seq_length=32,vocab_size=256";

LayoutFile read(const std::string& text, const std::string& file = "run.sh",
                const std::string& network = eight_blocks) {
  Request request;
  request.network = network;
  request.cluster = eight_gpus;
  const Experiment experiment(request);
  return read_trainer_file(text, file, experiment.network, experiment.cluster);
}

std::string refusal(const std::string& text, const std::string& file = "run.sh") {
  try {
    (void)read(text, file);
  } catch (const InputError& error) {
    return error.what();
  }
  return "read";
}

/// The first blocks' layers of stages and their devices, as 0,1/2,3|4,5/6,7.
std::string groups_of(const LayoutFile& file) {
  std::string text;
  for (const strategies::LayoutStage& stage : file.layout.stages) {
    text += text.empty() ? "" : "|";
    for (std::size_t g = 0; g < stage.groups.size(); ++g) {
      text += g == 0 ? "" : "/";
      for (std::size_t d = 0; d < stage.groups[g].size(); ++d) {
        text += (d == 0 ? "" : ",") + std::to_string(stage.groups[g][d].index());
      }
    }
  }
  return text;
}

TEST_CASE(
    "trainer file: a schedule that torchtitan does not read is said, and of a pipeline refused") {
  const auto pipelines = [](int degree, const std::string& schedule) {
    return "[training]\nlocal_batch_size = 4\n[parallelism]\npipeline_parallel_degree = " +
           std::to_string(degree) + "\npipeline_parallel_schedule = \"" + schedule + "\"\n";
  };
  CHECK(read(pipelines(1, "ZBVZeroBubble"), "t.toml").notes ==
        std::vector<std::string>{"t.toml:5:parallelism.pipeline_parallel_schedule: ZBVZeroBubble, "
                                 "which nothing reads: without a pipeline there is no schedule"});
  CHECK(read(pipelines(1, "Interleaved1F1B"), "t.toml").notes.empty());
  CHECK(refusal(pipelines(2, "ZBVZeroBubble"), "t.toml").find("InterleavedZeroBubble") !=
        std::string::npos);
  const std::string compiled = pipelines(2, "InterleavedZeroBubble") + "[compile]\nenable = true\n";
  CHECK(refusal(compiled, "t.toml").find("a model that is not compiled") != std::string::npos);
}

TEST_CASE("trainer file: torchtitan's layers of a stage count embedding and head") {
  const auto stages = [](const std::string& schedule, int layers) {
    return "[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = \"" +
           schedule + "\"\npipeline_parallel_layers_per_stage = " + std::to_string(layers) + "\n";
  };
  CHECK(read(stages("Interleaved1F1B", 1), "t.toml").layout.stages.size() == 10);  // 8 + 2 layers
  CHECK(read(stages("Interleaved1F1B", 3), "t.toml").layout.stages.size() == 4);
  CHECK(read(stages("InterleavedZeroBubble", 3), "t.toml").layout.stages.size() == 4);
  CHECK(read(stages("1F1B", 5), "t.toml").layout.stages.size() == 2);
  CHECK(refusal(stages("1F1B", 4), "t.toml") ==
        "t.toml:4:parallelism.pipeline_parallel_layers_per_stage: 8 blocks in 3 stages over 2 "
        "devices; accepted: a stage with blocks for each device");
  CHECK(refusal(stages("Interleaved1F1B", 5), "t.toml").find("two or more stages") !=
        std::string::npos);
}

TEST_CASE("trainer file: options change nothing that the trainer does by default") {
  Request request;
  request.network = eight_blocks;
  request.cluster = eight_gpus;
  const testing::TemporaryFolder folder;
  const auto refused = [&](const std::string& more, const char* flag) {
    request.layout_file =
        folder.write("run.sh", "torchrun x.py --tensor-model-parallel-size 2 " + more + "\n");
    request.given = {flag};
    const std::string why = testing::refusal_of([&] { (void)Experiment(request); });
    CHECK(why.starts_with(flag));
    return why.substr(why.find(": ") + 2);
  };
  const std::string decided = folder.path("run.sh") + " decides it; accepted: one of the two";
  CHECK(refused("", "--cp") == decided);
  CHECK(refused("", "--schedule") == decided);
  CHECK(refused("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1",
                "--recompute-every") == decided);
  request.layout_file =
      folder.write("l.toml", "[[stages]]\nblocks = \"0-7\"\ngroups = [[\"n0.gpu0\"]]\n");
  CHECK(testing::refusal_of([&] {
          (void)Experiment(request);
        }).starts_with("--recompute-every: without --recompute"));
}

TEST_CASE("trainer file: torchtitan's parts of the tokens shard states") {
  const LayoutFile parts = read(
      "[parallelism]\ncontext_parallel_degree = 4\ndata_parallel_replicate_degree = 2\n", "t.toml");
  CHECK(parts.zero_stage == 3);
  CHECK(parts.zero_group == ZeroGroup{4, false});
  CHECK(read("[parallelism]\ncontext_parallel_degree = 8\n", "t.toml").zero_stage == 3);
  CHECK(read("[parallelism]\ndata_parallel_replicate_degree = 8\n", "t.toml").zero_stage == 0);
}

TEST_CASE("trainer file: sums of gradients overlap with the backward pass where the trainer's do") {
  const std::string tp = "x --tensor-model-parallel-size 2";
  CHECK(read(tp + " --overlap-grad-reduce\n").bucket == std::nullopt);
  const LayoutFile after = read(tp + "\n");
  CHECK(after.bucket == after_backward);
  CHECK(after.notes ==
        std::vector<std::string>{"run.sh: sums of gradients begin after the backward pass, without "
                                 "overlap-grad-reduce"});
  const auto deepspeed = [](int stage, const std::string& more) {
    return read("{\"train_micro_batch_size_per_gpu\": 1, \"zero_optimization\": {\"stage\": " +
                    std::to_string(stage) + more + "}}",
                "ds.json")
               .bucket == after_backward;
  };
  CHECK(deepspeed(0, ", \"overlap_comm\": true"));
  for (const int stage : {1, 2, 3}) {
    CAPTURE(stage);
    CHECK(deepspeed(stage, "") == (stage < 3));
    CHECK_FALSE(deepspeed(stage, ", \"overlap_comm\": true"));
    CHECK(deepspeed(stage, ", \"overlap_comm\": false") == (stage < 3));
  }
}

TEST_CASE("trainer file: DeepSpeed's SGD has the momentum that its file says") {
  const auto optimizer = [](const std::string& params) {
    return read(
               "{\"train_micro_batch_size_per_gpu\": 1, \"optimizer\": {\"type\": \"SGD\", "
               "\"params\": {" +
                   params + "}}}",
               "ds.json")
        .optimizer;
  };
  CHECK(optimizer("\"lr\": 0.1, \"momentum\": 0.9") == Optimizer::momentum);
  CHECK(optimizer("\"lr\": 0.1") == Optimizer::sgd);
}

TEST_CASE("trainer file: Megatron-LM's arguments of a script and of YAML, by hand") {
  const std::string script =
      "#!/bin/bash\n# --tensor-model-parallel-size 8\nARGS=(\n  --tensor-model-parallel-size 2\n"
      "  --pipeline-model-parallel-size=2 --micro-batch-size '2' \\\n  --global-batch-size \\\n "
      "16\n"
      "  --use-distributed-optimizer --bf16 --recompute-activations\n)\n"
      "torchrun --nproc-per-node 4 \"${ARGS[@]}\"\n";
  const std::string yaml =
      "ENV_VARS:\n  NCCL_ALGO: Ring\nMODEL_ARGS:\n  --tensor-model-parallel-size: 2 # two\n"
      "  --pipeline-model-parallel-size: 2\n  --micro-batch-size: 2\n  --global-batch-size: 16\n"
      "  --use-distributed-optimizer: true\n  --bf16: true\n  --recompute-activations: true\n"
      "  --sequence-parallel: false\n";
  for (const std::string& text : {script, yaml}) {
    CHECK(is_trainer_file(text, "x"));
    const LayoutFile file = read(text, "run.sh", eight_blocks + ",attention=eager");
    CHECK(groups_of(file) == "0,1/2,3|4,5/6,7");
    CHECK(file.batch == 16);
    CHECK(file.micro_batches == 4);  // 16 samples, two of each of two replicas at a time
    CHECK(file.zero_stage == 1);
    CHECK(file.recompute == strategies::Recompute::selective);
    CHECK(file.precision == Precision::bf16);
    CHECK(file.reduce_precision == Precision::fp32);
    CHECK(file.optimizer == Optimizer::adam);
    CHECK(file.sequence_parallel == false);
    CHECK(file.tensor_overlap == false);
  }
}

TEST_CASE("trainer file: experts that tensor-parallel groups leave whole, by hand") {
  const auto file = [&](const std::string& more) {
    return read("train --tensor-model-parallel-size 2 --micro-batch-size 2 " + more + "\n");
  };
  CHECK(file("--sequence-parallel --expert-tensor-parallel-size 1").expert_tensor_parallel == 1);
  CHECK(file("--expert-tensor-parallel-size 2").expert_tensor_parallel == 2);
  CHECK(file("--sequence-parallel").expert_tensor_parallel == std::nullopt);
  const auto refused = [&](const std::string& more) {
    return refusal("train --tensor-model-parallel-size 2 --micro-batch-size 2 " + more + "\n");
  };
  CHECK(refused("--expert-tensor-parallel-size 4").ends_with("accepted: 1 or 2"));
  CHECK(
      refused("--expert-tensor-parallel-size 1").ends_with("accepted: 1 with --sequence-parallel"));
}

TEST_CASE("trainer file: how Megatron-LM sends tokens to experts is said where it is another way") {
  const std::string experts =
      "train --expert-model-parallel-size 2 --micro-batch-size 2 --overlap-grad-reduce";
  const auto notes = [&](const std::string& more) { return read(experts + more + "\n").notes; };
  REQUIRE(notes("").size() == 1);
  CHECK(notes("").front().find("by all-gathers there") != std::string::npos);
  CHECK(notes(" --moe-token-dispatcher-type allgather") == notes(""));
  CHECK(notes(" --moe-token-dispatcher-type alltoall").empty());
}

TEST_CASE("trainer file: overlap of tensor-parallel collectives, by hand") {
  const std::string megatron =
      "train --tensor-model-parallel-size 2 --micro-batch-size 2 --tp-comm-overlap";
  CHECK(read(megatron + " --sequence-parallel\n").tensor_overlap == true);
  CHECK(read("train --tensor-model-parallel-size 2 --micro-batch-size 2 --sequence-parallel\n")
            .tensor_overlap == false);
  // Megatron-LM's own check, after it has turned sequence parallelism off for one GPU.
  const std::string alone =
      "train --tensor-model-parallel-size 1 --micro-batch-size 2 --tp-comm-overlap "
      "--sequence-parallel\n";
  for (const std::string& text : {megatron + "\n", alone}) {
    const std::string message = refusal(text);
    CAPTURE(message);
    CHECK(message.find("tp-comm-overlap") != std::string::npos);
    CHECK(message.ends_with("accepted: with sequence parallelism over two or more GPUs"));
  }
  const auto torchtitan = [](int tp, const std::string& async) {
    return read("[training]\nlocal_batch_size = 8\n[parallelism]\ntensor_parallel_degree = " +
                    std::to_string(tp) + "\nenable_async_tensor_parallel = " + async + "\n" +
                    "[compile]\nenable = true\n",
                "t.toml")
        .tensor_overlap;
  };
  CHECK(torchtitan(2, "true") == true);
  CHECK(torchtitan(2, "false") == false);
  CHECK(torchtitan(1, "true") == false);
  const std::string eager = "[parallelism]\nenable_async_tensor_parallel = true\n";
  CHECK(refusal(eager, "t.toml").ends_with("a model that is compiled ([compile] enable = true)"));
}

TEST_CASE("trainer file: variables, quoted arguments and Windows line ends of scripts") {
  for (const std::string text :
       {"TP=2\nexport PP=2\nGPT_ARGS=\"--tensor-model-parallel-size $TP\n  "
        "--pipeline-model-parallel-size ${PP} \\\n\"\npython train.py $GPT_ARGS\n",
        "A='--tensor-model-parallel-size 2 --pipeline-model-parallel-size ${PP:-2}'\n",
        "\xEF\xBB\xBFpython x.py \\\r\n --tensor-model-parallel-size \\\r\n 2 \\\r\n "
        "--pipeline-model-parallel-size=2\r\n"}) {
    CAPTURE(text);
    CHECK(groups_of(read(text)) == "0,1/2,3|4,5/6,7");
  }
  // A command's own environment is not what its words are made of.
  for (const std::string before : {"TP=1 A='b c' torchrun", "TP=1 NCCL_DEBUG=\"INFO\"  python",
                                   "TP=2; torchrun", "export TP=2 && torchrun"}) {
    CAPTURE(before);
    CHECK(groups_of(read("TP=2\n" + before +
                         " x.py --tensor-model-parallel-size $TP "
                         "--pipeline-model-parallel-size 2\n")) == "0,1/2,3|4,5/6,7");
  }
  CHECK(read("x --tensor-model-parallel-size 2 --bf16; echo done > log\n").precision ==
        Precision::bf16);
  CHECK(read("x --tensor-model-parallel-size 2 --overlap-grad-reduce ${MODEL_ARGS[@]} "
             "$DATA_ARGS\n")
            .notes.size() == 2);
  // What the trainer has besides is its own business, a slip is not.
  CHECK(groups_of(read("x --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 "
                       "--pipeline-element-type 3 --decoder-num-layers 4 --fp4-recipe x\n")) ==
        "0,1/2,3|4,5/6,7");
  for (const std::string slip : {"pipeline-model-paralel-size", "pipeline-modle-parallel-size",
                                 "pipeline-model-parallel-sizes", "pipeline-model-parallel-siez"}) {
    CHECK(refusal("x --tensor-model-parallel-size 2 --" + slip + " 2\n") ==
          "run.sh:1:" + slip + ": unknown; accepted: 'pipeline-model-parallel-size'");
  }
  CHECK(refusal("x --tensor-model-parallel-size $TP\n") ==
        "run.sh:1:tensor-model-parallel-size: '$TP'; accepted: a whole number of 1 or more");
}

TEST_CASE("trainer file: layouts of Megatron-LM's pipelines, by hand") {
  const auto first_layers = [](const std::string& arguments) {
    const LayoutFile file = read("x --tensor-model-parallel-size 1 " + arguments);
    std::vector<std::size_t> first;
    for (const auto& stage : file.layout.stages) first.push_back(stage.first);
    return std::pair{first, file.layout.chunks};
  };
  Request request;
  request.network = eight_blocks;
  request.cluster = eight_gpus;
  const Experiment experiment(request);
  const std::vector<std::size_t> block = strategies::first_layers_of_blocks(experiment.network);
  // The embedding is tokens, table and positions, and goes with the first block unless it is alone.
  const std::vector<std::int64_t> of_layer = strategies::blocks_of(experiment.network);
  const auto embedding =
      static_cast<std::size_t>(std::find(of_layer.begin(), of_layer.end(), 0) - of_layer.begin());
  REQUIRE(embedding > 0);
  const auto check = [&](const std::string& arguments, std::vector<std::size_t> expected,
                         std::int32_t chunks) {
    CAPTURE(arguments);
    CHECK(first_layers(arguments) == std::pair{std::move(expected), chunks});
  };
  check("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'Et*5|t*3L'",
        {0, block[5]}, 1);
  check("--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout 'E(tt|)*3,t,tL'",
        {0, block[2], block[4], block[6]}, 2);
  check("--pipeline-model-parallel-size 4 --pipeline-model-parallel-layout 'E|(tt|)*2t*4L'",
        {0, embedding, block[2], block[4]}, 1);
  check("--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2",
        {0, block[2], block[4], block[6]}, 2);
  check("--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 1",
        {0, block[1], block[2], block[3], block[4], block[5], block[6], block[7]}, 4);
  check("--pipeline-model-parallel-size 2 --decoder-last-pipeline-num-layers 2", {0, block[6]}, 1);
  // The number is of the device, whose chunks share it.
  check(
      "--pipeline-model-parallel-size 2 --num-virtual-stages-per-pipeline-rank 2 "
      "--decoder-first-pipeline-num-layers 2",
      {0, block[1], block[4], block[5]}, 2);
  CHECK(
      refusal("x --tensor-model-parallel-size 1 --pipeline-model-parallel-size 2 "
              "--num-virtual-stages-per-pipeline-rank 2 --decoder-first-pipeline-num-layers 3\n") ==
      "run.sh:1:pipeline-model-parallel-size: 3 blocks of a stage in 2 chunks; accepted: chunks "
      "that divide the blocks of each stage, or a layout of the pipeline");
  // Before, groups of 16 had the activations of groups of 2.
  const std::string groups =
      "x --pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2 "
      "--micro-batch-size 1 --microbatch-group-size-per-virtual-pipeline-stage ";
  CHECK(refusal(groups + "2\n") == "read");
  CHECK(refusal(groups + "16\n").ends_with("'16'; accepted: 2, as many as stages"));
}

TEST_CASE("trainer file: slips and contradictions are refused, and YAML's words for no are no") {
  const std::string start = "x --tensor-model-parallel-size 2 --micro-batch-size 1 ";
  CHECK(refusal(start + "--bf16 --fp16") ==
        "run.sh:1:fp16: a setting that parsim does not know; "
        "accepted: one of bf16 and fp16");
  CHECK(refusal(start + "--num-virtual-stages-per-pipeline-rank 2") ==
        "run.sh:1:num-virtual-stages-per-pipeline-rank: '2'; accepted: 1 without a pipeline of two "
        "stages or more");
  CHECK(refusal(start + std::string(1, '\0')) == "run.sh: a zero byte; accepted: text in UTF-8");
  for (const std::string no : {"off", "Off", "NO", "FALSE", "~", "Null"}) {
    CAPTURE(no);
    CHECK(read("--tensor-model-parallel-size: 2\n--sequence-parallel: " + no + "\n")
              .sequence_parallel == false);
  }
  const std::string json = "{\"train_batch_size\": 16, ";
  CHECK(refusal(json + "\"zero_optimisation\": {\"stage\": 2}}", "ds.json") ==
        "ds.json:1:zero_optimisation.stage: unknown; accepted: 'zero_optimization.stage'");
  CHECK(refusal(json + "\"bf16\": {\"enabled\": true}, \"fp16\": {\"enabled\": true}}",
                "ds.json") == "ds.json:1:fp16.enabled: 'true'; accepted: one of bf16 and fp16");
  CHECK(refusal("[training]\nlocal_bach_size = 4\n[parallelism]\n", "t.toml") ==
        "t.toml:2:training.local_bach_size: unknown; accepted: 'training.local_batch_size'");
}

TEST_CASE("trainer file: stages send as the trainer does") {
  using strategies::PipelineSends;
  const auto megatron = [](const std::string& more) {
    return read("x --tensor-model-parallel-size 1 " + more).sends;
  };
  const std::string two = "--pipeline-model-parallel-size 2 ";
  const std::string chunks = two + "--num-virtual-stages-per-pipeline-rank 2 ";
  CHECK(megatron("") == std::nullopt);  // one stage: nothing to send
  CHECK(megatron(two) == PipelineSends::blocking);
  CHECK(megatron(chunks) == PipelineSends::overlapped);
  CHECK(megatron(chunks + "--no-overlap-p2p-communication") == PipelineSends::blocking);
  const auto torchtitan = [](const std::string& schedule) {
    return read(
               "[training]\nlocal_batch_size = 4\n[parallelism]\npipeline_parallel_degree = 2\n"
               "pipeline_parallel_schedule = \"" +
                   schedule + "\"\n",
               "t.toml")
        .sends;
  };
  CHECK(torchtitan("1F1B") == PipelineSends::blocking);
  CHECK(torchtitan("GPipe") == PipelineSends::overlapped);
  CHECK(torchtitan("Interleaved1F1B") == PipelineSends::overlapped);
}

TEST_CASE("trainer file: what a layout cannot say is refused by key") {
  const std::string start = "x --tensor-model-parallel-size 2 ";
  CHECK(
      refusal(start + "--use-tp-pp-dp-mapping") ==
      "run.sh:1:use-tp-pp-dp-mapping: a setting that parsim does not know; accepted: ranks in the "
      "order tp-cp-ep-dp-pp");
  CHECK(refusal(start + "--pipeline-model-parallel-size 3").find("6 GPUs of a replica") !=
        std::string::npos);
  CHECK(refusal(start + "--micro-batch-size many") ==
        "run.sh:1:micro-batch-size: 'many'; accepted: a whole number of 1 or more");
  CHECK(
      refusal(start + "--micro-batch-size 1 --global-batch-size 6") ==
      "run.sh:1:global-batch-size: 6 samples in micro-batches of 4 over all replicas; accepted: a "
      "multiple");
  CHECK(refusal(start + "--recompute-granularity full --recompute-method block") ==
        "run.sh:1:recompute-method: 'block'; accepted: uniform");
  for (const std::string selective : {"recompute-granularity selective", "recompute-activations"}) {
    CAPTURE(selective);
    const std::string key = selective.substr(0, selective.find(' '));
    CHECK(refusal(start + "--" + selective) ==
          "run.sh:1:" + key +
              ": selective, which only runs a fused attention kernel twice; accepted: none, which "
              "needs no more memory, or full; of attention that keeps its scores, --network with "
              "attention=eager, or \"attn_implementation\": \"eager\" in config.json");
  }
  CHECK(refusal("{\"train_batch_size\": 16, \"zero_optimization\": {\"stage\": 3, "
                "\"offload_param\": {\"device\": \"cpu\"}}}",
                "ds.json")
            .find("offload_param.device: 'cpu'; accepted: none") != std::string::npos);
  CHECK(refusal("{\"train_batch_size\": \"auto\"}", "ds.json") ==
        "--batch: missing: ds.json leaves it open; accepted: the samples of a step, in place of "
        "\"auto\"");
  CHECK(refusal("[parallelism]\ntensor_parallel_degre = 2\n", "t.toml") ==
        "t.toml:2:parallelism.tensor_parallel_degre: unknown key; accepted: keys of torchtitan's "
        "Parallelism; did you mean 'tensor_parallel_degree'?");
  CHECK(refusal("[parallelism]\npipeline_parallel_degree = 2\n"
                "pipeline_parallel_schedule = \"ZBVZeroBubble\"\n",
                "t.toml") ==
        "t.toml:3:parallelism.pipeline_parallel_schedule: 'ZBVZeroBubble'; accepted: GPipe, "
        "1F1B, Interleaved1F1B or InterleavedZeroBubble");
  CHECK(refusal("hetero_process_meshes: [2, 1, 1, 2]\n", "f.yaml").find("of each mesh") !=
        std::string::npos);
  CHECK(refusal("model: {tensor_model_parallel_size: 2}\n", "f.yaml") ==
        "f.yaml:1:model: a table in one line; accepted: a line for each setting");
  CHECK(refusal("hetero_process_meshes: [2, 1, 1, 2, 1, 1, 2, 1, 2, 1]\n", "f.yaml")
            .find("the same cp") != std::string::npos);
  CHECK(
      refusal("hetero_process_meshes: [2, 1, 1, 4, 1]\noptimizer_cpu_offload: True\n", "f.yaml") ==
      "f.yaml:2:optimizer-cpu-offload: 'True'; accepted: optimizer states on the GPU");
  CHECK(refusal("[parallelism]\npipeline_parallel_degree = 2\nmodule_fqns_per_model_part = [\n"
                "  [\"layers.0\", \"layers.2\"], [\"layers.1\"]]\n",
                "t.toml")
            .find("layers.1 next") != std::string::npos);
  CHECK(refusal("{\"train_batch_size\": 16, \"bf16\": true}", "ds.json") ==
        "ds.json:1:bf16: 'true'; accepted: none");
  CHECK(refusal(start + "--micro-batch-size 1 --global-batch-size 400000") ==
        "run.sh:1:global-batch-size: 100000 micro-batches; accepted: 65536 at most");
  CHECK(!is_trainer_file("[[stages]]\nblocks = \"0-7\"\n", "layout.toml"));
  CHECK(!is_trainer_file("{\"format\": \"parsim-plan\"}", "plan.json"));
}

TEST_CASE("trainer file: what a script may not give is refused, where it is asked for") {
  const std::string end =
      ", which parsim does not follow; accepted: a script with the arguments of one launch, or "
      "that "
      "launch as it is printed by 'bash -x'";
  const std::string tp = "tensor-model-parallel-size", condition = "within a condition or loop";
  const auto refused = [&](const std::string& text, const std::string& place,
                           const std::string& why) {
    CHECK(refusal(text) == "run.sh:" + place + ": " + why + end);
  };
  refused("if [ $GPUS = 8 ]; then\n  ARGS=\"--" + tp + " 2\"\nelse\n  ARGS=\"--" + tp +
              " 4\"\nfi\ntorchrun $ARGS\n",
          "4:" + tp, condition);
  refused("if $BIG; then TP=4; else TP=2; fi\ntorchrun x.py --" + tp + " $TP\n", "2:" + tp,
          condition);
  refused("for TP in 1 2 4; do\n  torchrun x.py --" + tp + " $TP\ndone\n", "2:" + tp, condition);
  refused("[ -n \"$BIG\" ] && ARGS+=\"--" + tp + " 4\"\ntorchrun $ARGS\n", "1:" + tp, condition);
  refused("cat > job.sh <<'EOF'\ntorchrun x.py --" + tp + " 2\nEOF\nsbatch job.sh\n", "2:" + tp,
          "within a here-document");
  refused("torchrun x.py --" + tp + " 2\ntorchrun x.py --" + tp + " 4\n", "2:" + tp,
          "not the same for all launches");
  refused("torchrun x.py --" + tp + " 2 \\\n  --bf16\ntorchrun y.py --" + tp + " 2\n", "2:bf16",
          "not the same for all launches");
  refused("ARGS=\"--" + tp + " 2\"\ntorchrun $ARGS\nARGS=\"--" + tp + " 4\"\ntorchrun $ARGS\n",
          "3:" + tp, "not the same for all launches");

  refused("(TP=4)\ntorchrun x.py --" + tp + " $TP\n", "2:" + tp, "within a subshell");
  refused("(\n  TP=4\n)\ntorchrun x.py --" + tp + " $TP\n", "4:" + tp, "within a subshell");
  refused("f() {\n  echo ${HOME}\n  TP=4\n}\nf\ntorchrun x.py --" + tp + " $TP\n", "6:" + tp,
          "within a function");
  refused("function f\n{\n  TP=4\n}\nf\ntorchrun x.py --" + tp + " $TP\n", "6:" + tp,
          "within a function");
  refused("TP=2\nread TP < tp.txt\ntorchrun x.py --" + tp + " $TP\n", "3:" + tp, "from 'read'");
  refused("printf -v TP 4\ntorchrun x.py --" + tp + " $TP\n", "2:" + tp, "from 'printf'");
  CHECK(refusal("torchrun x.py --tensor-model-par\\\nallel-size 4\n") ==
        "run.sh:1: a word that goes on in the next line; accepted: a blank before the backslash, "
        "or at the beginning of that line");

  // What is not asked for may be anywhere; what is given twice to one launch counts as the last.
  const LayoutFile file = read(
      "if [ -z \"$DATA\" ]; then\n  echo done\n  exit 1\nfi\n"
      "case $RANK in 0) LOG=\"--log-interval 1\" ;; esac\n"
      "NONE=()\nf() {\n  echo done\n}\ng() { echo done; }\n(cd /tmp)\ncat <<< hello\nARGS=\"--" +
      tp +
      " 2 --bf16\"\npip install accelerate deepspeed\n"
      "torchrun x.py $ARGS \\\n  --" +
      tp + " 4\n");
  CHECK(file.precision == Precision::bf16);
  CHECK(groups_of(file) == "0,1,2,3/4,5,6,7");
  // An argument without a name, and one that becomes a table of YAML further down.
  for (const char* odd :
       {" --=1\ntorchrun y.py --=2 ---=3", " --system 1\nsystem:\n  bf16: true"}) {
    CHECK(groups_of(read("ARGS=\"--" + tp + " 4\"\ntorchrun x.py $ARGS" + odd + "\n")) ==
          "0,1,2,3/4,5,6,7");
  }
  // Two launches of the same.
  CHECK(groups_of(read("ARGS=\"--" + tp + " 4\"\ntorchrun a.py $ARGS\ntorchrun b.py $ARGS\n")) ==
        "0,1,2,3/4,5,6,7");
}

TEST_CASE("trainer file: accelerate's YAML, by hand") {
  const auto file_of = [](const std::string& text, std::optional<std::int64_t> batch = 32) {
    Request request;
    request.network = eight_blocks;
    request.cluster = eight_gpus;
    const Experiment experiment(request);
    return read_trainer_file(text, "a.yaml", experiment.network, experiment.cluster, batch);
  };
  const auto refused = [&](const std::string& text, std::optional<std::int64_t> batch = 32) {
    try {
      (void)file_of(text, batch);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string("read");
  };
  // As `accelerate config` writes it: FSDP 1 by default, all of its words in quotes or not.
  const std::string start = "compute_environment: LOCAL_MACHINE\nnum_processes: 8\n";
  const std::string fsdp = start + "distributed_type: FSDP\nmixed_precision: bf16\n";
  CHECK(is_trainer_file(fsdp, "a.yaml"));
  const LayoutFile one = file_of(fsdp +
                                 "fsdp_config:\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n"
                                 "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
                                 "  fsdp_offload_params: false\n");
  CHECK(one.zero_stage == 2);
  CHECK(one.precision == Precision::bf16);
  CHECK(one.reduce_precision == Precision::bf16);
  CHECK(!one.batch);
  CHECK(groups_of(one) == "0/1/2/3/4/5/6/7");
  const LayoutFile two =
      file_of(fsdp +
              "fsdp_config:\n  fsdp_version: 2\n  fsdp_activation_checkpointing: true\n"
              "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
              "parallelism_config:\n  parallelism_config_dp_replicate_size: 2\n"
              "  parallelism_config_dp_shard_size: 2\n  parallelism_config_tp_size: 2\n");
  CHECK(two.zero_stage == 3);
  CHECK(two.zero_group == ZeroGroup{2, false});
  CHECK(two.recompute == strategies::Recompute::full);
  CHECK(groups_of(two) == "0,1/2,3/4,5/6,7");
  const LayoutFile ddp = file_of(start + "distributed_type: 'MULTI_GPU'\nmixed_precision: 'no'\n");
  CHECK(ddp.zero_stage == 0);
  CHECK(ddp.precision == Precision::fp32);
  const LayoutFile deepspeed = file_of(start +
                                       "distributed_type: DEEPSPEED\nmixed_precision: fp16\n"
                                       "deepspeed_config:\n  zero_stage: 1\n"
                                       "  gradient_accumulation_steps: 4\n");
  CHECK(deepspeed.zero_stage == 1);
  CHECK(deepspeed.micro_batches == 4);
  for (const std::string slip :
       {"zero_stge", "gradient_acumulation_steps", "offload_optimiser_device"}) {
    CHECK(refused(start + "distributed_type: DEEPSPEED\ndeepspeed_config:\n  " + slip + ": 1\n")
              .find("unknown; accepted: '") != std::string::npos);
  }

  CHECK(refused(fsdp, {}) ==
        "--batch: missing: a.yaml leaves it open; accepted: the samples of a step, which the "
        "script decides");
  CHECK(refused(start + "distributed_type: MEGATRON_LM\n") ==
        "a.yaml:3:distributed-type: 'MEGATRON_LM'; accepted: NO, MULTI_GPU, FSDP or DEEPSPEED");
  CHECK(refused("distributed_type: FSDP\nnum_processes: 4\n") ==
        "a.yaml:2:num-processes: 4 processes for 8 GPUs; accepted: a process for each GPU, or a "
        "hostfile of those that are used");
  CHECK(refused(fsdp + "fsdp_config:\n  fsdp_reshard_after_foward: true\n") ==
        "a.yaml:6:fsdp-reshard-after-foward: unknown key; accepted: keys of accelerate's "
        "fsdp_config and parallelism_config; did you mean 'fsdp-reshard-after-forward'?");
  CHECK(refused(fsdp + "fsdp_config:\n  fsdp_offload_params: true\n") ==
        "a.yaml:6:fsdp-offload-params: 'true'; accepted: all on the GPU");
  CHECK(refused(fsdp + "fsdp_config:\n  fsdp_version: 2\nparallelism_config:\n"
                       "  parallelism_config_tp_size: 2\n") ==
        "a.yaml:parallelism-config-dp-shard-size: 1, so FSDP shards nothing; accepted: 2 or more, "
        "no parallelism_config, or distributed_type: MULTI_GPU");
  CHECK(refused(fsdp + "fsdp_config:\n  fsdp_version: 2\nparallelism_config:\n"
                       "  parallelism_config_dp_shard_size: 2\n") ==
        "a.yaml:8:parallelism-config-dp-shard-size: 1 copies of 2 shards; accepted: sizes whose "
        "product is 8 replicas");
}

}  // namespace
}  // namespace parsim::experiment
