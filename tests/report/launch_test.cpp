// Launch files, against Megatron-LM's arguments written by hand.
#include "report/launch.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/text.hpp"
#include "experiment/experiment.hpp"
#include "experiment/run.hpp"
#include "strategies/degrees.hpp"
#include "tests/support/program.hpp"

namespace parsim::report {
namespace {

using Words = std::vector<std::string>;

struct Made {
  std::unique_ptr<experiment::Experiment> experiment;
  Plan plan;
};

Made made(const std::string& cluster, std::int64_t layers, void (*change)(experiment::Request&),
          const std::string& strategy = "tensor") {
  experiment::Request request;
  request.network =
      "gpt:layers=" + std::to_string(layers) + ",hidden=64,heads=4,seq_length=32,vocab_size=256";
  request.cluster = cluster;
  request.batch = 16;
  request.precision = request.reduce_precision = Precision::bf16;
  request.optimizer = Optimizer::adam;
  change(request);
  auto experiment = std::make_unique<experiment::Experiment>(request);
  Plan plan = make_plan(*experiment, strategies::strategy(strategy, "test")).plan;
  return {std::move(experiment), std::move(plan)};
}

const std::string machines = "nodes:2x4,device=a100-sxm4-80,intra=300GB/s,inter=25GB/s";

std::string refusal(const Made& of) {
  try {
    (void)megatron_ranks(of.experiment->network, of.experiment->cluster, of.plan);
  } catch (const InputError& error) {
    return error.what();
  }
  return {};
}

TEST_CASE("launch: parts of the tokens are between tensor groups and replicas, by hand") {
  const auto check = [](void (*change)(experiment::Request&), const std::string& name) {
    const Made two = made(machines, 2, change);
    const Words words =
        megatron_arguments(two.experiment->network, two.experiment->cluster, two.plan);
    CHECK(Words(words.begin(), words.begin() + 8) ==
          Words{"--tensor-model-parallel-size", "2", "--context-parallel-size", "2",
                "--cp-comm-type", name, "--pipeline-model-parallel-size", "1"});
    std::vector<DeviceId> ranks;
    for (std::size_t d = 0; d < 8; ++d) ranks.emplace_back(d);
    CHECK(megatron_ranks(two.experiment->network, two.experiment->cluster, two.plan) == ranks);
  };
  check(
      [](experiment::Request& request) {
        request.tensor_parallel = request.context_parallel = request.data_parallel = 2;
        request.pipeline_parallel = 1;
        request.micro_batches = 4;
      },
      "p2p");
  check(
      [](experiment::Request& request) {
        request.tensor_parallel = request.context_parallel = request.data_parallel = 2;
        request.pipeline_parallel = 1;
        request.micro_batches = 4;
        request.context_exchange = strategies::ContextExchange::all_gather;
      },
      "all_gather");
  check(
      [](experiment::Request& request) {
        request.tensor_parallel = request.context_parallel = request.data_parallel = 2;
        request.pipeline_parallel = 1;
        request.micro_batches = 4;
        request.context_exchange = strategies::ContextExchange::a2a;
      },
      "a2a");
}

TEST_CASE("launch: accelerate starts a process for every GPU of every machine") {
  const Made two = made(machines, 4, [](experiment::Request& request) {
    request.data_parallel = 8;
    request.tensor_parallel = request.pipeline_parallel = 1;
    request.reduce_precision = Precision::fp32;
  });
  const std::string text =
      launch_files(Trainer::accelerate, two.experiment->network, two.experiment->cluster, two.plan)
          .files.at(0)
          .text;
  CHECK(text.find("num_machines: 2\nnum_processes: 8\n") != text.npos);
}

TEST_CASE("launch: torchtitan's replicas hold whole states only where nothing else divides") {
  const auto refused = [](void (*change)(experiment::Request&)) {
    const Made one = made(machines, 4, change);
    try {
      (void)launch_files(Trainer::torchtitan, one.experiment->network, one.experiment->cluster,
                         one.plan);
    } catch (const InputError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const std::string together = "its replicas hold whole states, together with other parallelism";
  CHECK(refused([](experiment::Request& request) {
          request.tensor_parallel = request.context_parallel = request.data_parallel = 2;
          request.pipeline_parallel = 1;
          request.sequence_parallel = true;
          request.reduce_precision = Precision::fp32;
        }).find(together) != std::string::npos);
  CHECK(refused([](experiment::Request& request) {
          request.tensor_parallel = request.pipeline_parallel = request.data_parallel = 2;
          request.micro_batches = 4;
          request.sequence_parallel = true;
          request.reduce_precision = Precision::fp32;
        }).find(together) != std::string::npos);
  CHECK(refused([](experiment::Request& request) {
          request.data_parallel = 8;
          request.tensor_parallel = request.pipeline_parallel = 1;
          request.reduce_precision = Precision::fp32;
        }).empty());
}

TEST_CASE("launch: ranks are tensor groups, then replicas, then stages, by hand") {
  const Made two = made(machines, 4, [](experiment::Request& request) {
    request.tensor_parallel = 2;
    request.pipeline_parallel = 2;
    request.data_parallel = 2;
    request.micro_batches = 4;
    request.zero_stage = 1;
    request.recompute = strategies::Recompute::full;
  });
  CHECK(megatron_arguments(two.experiment->network, two.experiment->cluster, two.plan) ==
        Words{"--tensor-model-parallel-size",
              "2",
              "--pipeline-model-parallel-size",
              "2",
              "--micro-batch-size",
              "2",
              "--global-batch-size",
              "16",
              "--bf16",
              "--grad-reduce-in-bf16",
              "--optimizer",
              "adam",
              "--use-distributed-optimizer",
              "--overlap-grad-reduce",
              "--recompute-granularity",
              "full",
              "--recompute-method",
              "uniform",
              "--recompute-num-layers",
              "1"});
  const std::vector<DeviceId> ranks =
      megatron_ranks(two.experiment->network, two.experiment->cluster, two.plan);
  REQUIRE(ranks.size() == 8);
  const auto stages = strategies::stages_of(two.experiment->network, two.plan);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    // Rank r is in stage r / 4 (Narayanan et al. 2021, section 3).
    const auto& own = stages[rank / 4].devices;
    CHECK(std::find(own.begin(), own.end(), ranks[rank]) != own.end());
  }
}

TEST_CASE("launch: recipes of FP8 have Megatron-LM's names") {
  const auto recipe = [](void (*change)(experiment::Request&)) {
    const Made fp8 = made("nodes:1x4,device=h100-sxm5,intra=300GB/s,inter=25GB/s", 4, change);
    const Words words =
        megatron_arguments(fp8.experiment->network, fp8.experiment->cluster, fp8.plan);
    const auto at = std::find(words.begin(), words.end(), "--bf16");
    REQUIRE(words.end() - at > 4);
    return Words(at + 1, at + 5);
  };
  CHECK(recipe([](experiment::Request& request) { request.precision = Precision::fp8; }) ==
        Words{"--fp8-format", "hybrid", "--fp8-recipe", "tensorwise"});
  CHECK(recipe([](experiment::Request& request) { request.precision = Precision::fp8_delayed; }) ==
        Words{"--fp8-format", "hybrid", "--fp8-recipe", "delayed"});
  CHECK(recipe([](experiment::Request& request) {
          request.precision = Precision::fp8_blockwise;
        }) == Words{"--fp8-format", "e4m3", "--fp8-recipe", "blockwise"});
}

TEST_CASE("launch: uneven stages are a layout, and an embedding needs no block") {
  const Made uneven = made(machines, 5, [](experiment::Request& request) {
    request.tensor_parallel = 4;
    request.pipeline_parallel = 2;
    request.data_parallel = 1;
    request.micro_batches = 4;
  });
  const Words words =
      megatron_arguments(uneven.experiment->network, uneven.experiment->cluster, uneven.plan);
  const auto at = std::find(words.begin(), words.end(), "--pipeline-model-parallel-layout");
  REQUIRE(at != words.end());
  const std::string& layout = *(at + 1);
  const bool five = layout == "Et*2|t*3L" || layout == "Et*3|t*2L";
  CHECK_MESSAGE(five, layout);
}

TEST_CASE("launch: a stage may have the head alone, and other networks are refused") {
  const Made head = made(machines, 4, [](experiment::Request& request) {
    request.tensor_parallel = 4;
    request.pipeline_parallel = 2;
    request.data_parallel = 1;
  });
  const Words words =
      megatron_arguments(head.experiment->network, head.experiment->cluster, head.plan);
  CHECK(std::find(words.begin(), words.end(), "Et*4|L") != words.end());
  experiment::Request request;
  request.network = "lenet5";
  request.cluster = machines;
  const experiment::Experiment lenet(request);
  const Plan data = make_plan(lenet, strategies::strategy("data", "test")).plan;
  CHECK_THROWS_WITH_AS((void)megatron_arguments(lenet.network, lenet.cluster, data),
                       doctest::Contains("no transformer blocks"), InputError);
}

TEST_CASE("launch: ZeRO within machines is an instance of the optimizer for each") {
  const Made sharded = made(
      machines, 4,
      [](experiment::Request& request) {
        request.zero_stage = 3;
        request.zero_group = {0, true};
      },
      "data");
  const Words words =
      megatron_arguments(sharded.experiment->network, sharded.experiment->cluster, sharded.plan);
  const auto at = std::find(words.begin(), words.end(), "--num-distributed-optimizer-instances");
  REQUIRE(words.end() - at > 2);
  CHECK(*(at + 1) == "2");
  CHECK(*(at + 2) == "--outer-dp-sharding-strategy");
}

TEST_CASE("launch: the script starts each machine's part, and refuses others") {
  const Made two = made(machines, 4, [](experiment::Request& request) {
    request.tensor_parallel = 4;
    request.pipeline_parallel = 2;
    request.data_parallel = 1;
  });
  const Launch launch =
      launch_files(Trainer::megatron, two.experiment->network, two.experiment->cluster, two.plan);
  const testing::TemporaryFolder folder;
  for (const LaunchFile& file : launch.files) folder.write(file.name, file.text);
  CHECK(testing::read_text(folder.path("hostfile")) == "n0 slots=4\nn1 slots=4\n");
  // Instead of PyTorch's launcher.
  folder.write("torchrun", "#!/bin/sh\necho \"$CUDA_VISIBLE_DEVICES\" \"$@\"\n");
  const auto run = [&](const std::string& rank) {
    return testing::run_program("/bin/sh",
                                {"-c", "chmod +x torchrun; PATH=.:$PATH NODE_RANK=" + rank +
                                           " MASTER_ADDR=node0 bash run.sh train.py --mine"},
                                folder.folder());
  };
  const std::string out = run("1").out;
  CHECK(
      out.starts_with("0,1,2,3 --nnodes 2 --nproc-per-node 4 --node-rank 1 --master-addr node0 "
                      "--master-port 29500 train.py --mine --tensor-model-parallel-size 4 "
                      "--pipeline-model-parallel-size 2 --pipeline-model-parallel-layout Et*4|L "
                      "--micro-batch-size "));
  CHECK(run("2").exit_code == 2);
  CHECK(run("2").err == "NODE_RANK is 2, there are 2 machines\n");
}

// Megatron-LM's validate_args stops a run with tensor parallelism or parts of the tokens (before
// Blackwell) unless the variable is 1, and one with its FSDP if it is.
TEST_CASE("launch: the script sets CUDA_DEVICE_MAX_CONNECTIONS where Megatron-LM insists") {
  const auto seen = [](void (*change)(experiment::Request&), const std::string& before) {
    const Made four = made(machines, 4, change);
    const Launch launch = launch_files(Trainer::megatron, four.experiment->network,
                                       four.experiment->cluster, four.plan);
    const testing::TemporaryFolder folder;
    for (const LaunchFile& file : launch.files) folder.write(file.name, file.text);
    folder.write("torchrun", "#!/bin/sh\necho \"${CUDA_DEVICE_MAX_CONNECTIONS-unset}\"\n");
    return testing::run_program("/bin/sh",
                                {"-c", before + "chmod +x torchrun; PATH=.:$PATH NODE_RANK=0 "
                                                "MASTER_ADDR=node0 bash run.sh train.py"},
                                folder.folder())
        .out;
  };
  const auto replicas = [](experiment::Request& request) {
    request.tensor_parallel = request.pipeline_parallel = 1;
  };
  const auto tensor = [](experiment::Request& request) {
    request.tensor_parallel = 2;
    request.pipeline_parallel = 1;
  };
  const auto context = [](experiment::Request& request) {
    request.context_parallel = 2;
    request.tensor_parallel = request.pipeline_parallel = 1;
  };
  const auto fsdp = [](experiment::Request& request) {
    request.tensor_parallel = request.zero_stage = 2;
    request.pipeline_parallel = 1;
  };
  const std::string eight = "export CUDA_DEVICE_MAX_CONNECTIONS=8; ";
  CHECK(seen(tensor, eight) == "1\n");
  CHECK(seen(context, eight) == "1\n");
  CHECK(seen(replicas, eight) == "8\n");
  CHECK(seen(fsdp, "export CUDA_DEVICE_MAX_CONNECTIONS=1; ") == "unset\n");
}

TEST_CASE("launch: what Megatron-LM does to key/value heads and to the vocabulary is said") {
  const auto four = [](experiment::Request& request) {
    request.network =
        "gpt:layers=2,hidden=64,heads=4,kv_heads=2,seq_length=32,vocab_size=256,ffn_hidden=256";
    request.tensor_parallel = 4;
    request.pipeline_parallel = 1;
  };
  const auto two = [](experiment::Request& request) {
    request.network =
        "gpt:layers=2,hidden=64,heads=4,kv_heads=2,seq_length=32,vocab_size=256,ffn_hidden=256";
    request.tensor_parallel = 2;
    request.pipeline_parallel = 1;
  };
  const auto said = [](const Made& of, const std::string& line) {
    const Launch files =
        launch_files(Trainer::megatron, of.experiment->network, of.experiment->cluster, of.plan);
    return std::count(files.not_carried.begin(), files.not_carried.end(), line);
  };
  const std::string heads =
      "2 key/value heads on groups of 4 devices: Megatron-LM shards their weights and all-gathers "
      "their output, the predicted step replicates them";
  const std::string words =
      "a vocabulary of 256: Megatron-LM pads it to 512, a multiple of 128 x 4 "
      "(--make-vocab-size-divisible-by x tensor-parallel degree)";
  CHECK(said(made(machines, 2, four), heads) == 1);
  CHECK(said(made(machines, 2, four), words) == 1);
  CHECK(said(made(machines, 2, two), heads) == 0);
}

TEST_CASE("launch: groups that Megatron-LM's model cannot have are refused") {
  const auto eight = [](experiment::Request& request) {
    request.tensor_parallel = 8;
    request.pipeline_parallel = request.data_parallel = 1;
  };
  const auto keys = [](experiment::Request& request) {
    request.network =
        "gpt:layers=2,hidden=60,heads=6,kv_heads=2,seq_length=30,vocab_size=240,ffn_hidden=240";
    request.cluster = "nodes:1x3,device=a100-sxm4-80,intra=300GB/s,inter=25GB/s";
    request.tensor_parallel = 3;
    request.pipeline_parallel = request.data_parallel = 1;
  };
  const auto experts = [](experiment::Request& request) {
    request.network += ",experts=4";
    request.tensor_parallel = 2;
    request.pipeline_parallel = 1;
    request.expert_parallel = 2;
  };
  const auto sequence = [](experiment::Request& request) {
    request.network += ",experts=4";
    request.tensor_parallel = request.expert_parallel = 2;
    request.pipeline_parallel = 1;
    request.sequence_parallel = true;
  };
  CHECK(
      refusal(made(machines, 2, eight)).find("4 attention heads on groups of 8 devices; accept") !=
      std::string::npos);
  CHECK(refusal(made(machines, 2, keys)).find("2 key/value heads on groups of 3 devices; accept") !=
        std::string::npos);
  CHECK(refusal(made(machines, 2, experts)).ends_with("accepted: --sequence-parallel"));
  const auto window = [](experiment::Request& request) {
    request.network =
        std::string(PARSIM_SOURCE_DIR) + "/tests/networks/data/hugging_face/mistral-7b.json";
  };
  CHECK(refusal(made(machines, 2, window)).find("a window of 4096 tokens; acc") !=
        std::string::npos);
  CHECK(refusal(made(machines, 2, sequence)).empty());
  const auto groups = [](experiment::Request& request) {
    request.network += ",experts=4";
    request.tensor_parallel = request.pipeline_parallel = 1;
    request.expert_parallel = 4;
    request.zero_stage = 1;
    request.zero_group = {2, false};  // 4 groups, but 2 replicas of each expert
  };
  CHECK(refusal(made(machines, 2, groups)).find("4 ZeRO groups of 8 replicas") !=
        std::string::npos);
}

TEST_CASE("launch: what Megatron-LM has no words for is refused, with the nearest that it has") {
  Made plain = made(machines, 4, [](experiment::Request& request) {
    request.tensor_parallel = 2;
    request.pipeline_parallel = 2;
    request.data_parallel = 2;
    request.schedule = strategies::PipelineSchedule::gpipe;
    request.micro_batches = 4;
  });
  CHECK(
      refusal(plain) ==
      "--launch: Megatron-LM cannot run this plan: its schedule is not 1F1B; accepted: --schedule "
      "1f1b");
  const Made mixed = made(
      "nodes:2x4,device=a100-sxm4-80*4+v100-sxm2*4,intra=300GB/s,inter=25GB/s", 4,
      [](experiment::Request& request) {
        request.network = "gpt:layers=4,hidden=1024,heads=16,seq_length=256,vocab_size=1024";
        request.batch = 640;
        request.shares = strategies::ShareRule::proportional;
      },
      "data");
  CAPTURE(refusal(mixed));
  CHECK(refusal(mixed).find("unequal shares") != std::string::npos);
}

TEST_CASE("launch: a layer without weights that follows no degree is refused by all trainers") {
  const auto degrees = [](experiment::Request& request) {
    request.tensor_parallel = 2;
    request.pipeline_parallel = 1;
    request.data_parallel = 4;
    request.micro_batches = 1;
    request.sequence_parallel = false;
  };
  Made one = made(machines, 2, degrees);
  const Network& network = one.experiment->network;
  CHECK_FALSE(trainers_of(network, one.experiment->cluster, one.plan).empty());
  const Plan data = make_plan(*one.experiment, strategies::strategy("data", "test")).plan;
  std::size_t layer = 0;
  while (network.layers[layer].kind.as<Attention>() == nullptr) ++layer;
  one.plan.layers[layer] = data.layers[layer];
  CHECK(trainers_of(network, one.experiment->cluster, one.plan).empty());
  CHECK(refusal(one) ==
        "--launch: Megatron-LM cannot run this plan: layer '" + network.layers[layer].name +
            "' has its samples on 8 devices, of 4 replicas; accepted: layers that all follow the "
            "degrees, as with --strategy tensor");
}

/// A plan of two stages.
Made mixed_stages(const std::string& layout) {
  static const testing::TemporaryFolder folder;
  experiment::Request request;
  request.network = "gpt:layers=4,hidden=64,heads=4,seq_length=32,vocab_size=256";
  request.cluster = "nodes:2x4,device=a100-sxm4-80*4+v100-sxm2*4,intra=300GB/s,inter=25GB/s";
  request.batch = 16;
  request.precision = Precision::fp16;
  request.optimizer = Optimizer::adam;
  request.layout_file = folder.write("layout.toml", layout);
  auto experiment = std::make_unique<experiment::Experiment>(request);
  Plan plan = make_plan(*experiment, experiment::layout_strategy()).plan;
  return {std::move(experiment), std::move(plan)};
}

const std::string mixed_layout =
    "micro_batches = 2\nzero = 1\n"
    "[[stages]]\nblocks = \"0-2\"\ngroups = [[\"n0.gpu2\", \"n0.gpu3\"]]\n"
    "[[stages]]\nblocks = \"3\"\n"
    "groups = [[\"n1.gpu0\", \"n1.gpu1\"], [\"n1.gpu2\", \"n1.gpu3\"]]\n";

TEST_CASE("launch: FlagScale gets a mesh for each pair of degrees, by hand") {
  const Made mixed = mixed_stages(mixed_layout);
  const Launch launch = launch_files(Trainer::flagscale, mixed.experiment->network,
                                     mixed.experiment->cluster, mixed.plan);
  const auto text = [&](const std::string& name) {
    for (const LaunchFile& file : launch.files) {
      if (file.name == name) return file.text;
    }
    return std::string("no such file");
  };
  // Ranks 0 and 1 are the third and fourth GPU of n0, the others are n1's; 8 samples of a
  // micro-batch are all the one replica's, and four for each of the two.
  CHECK(text("hostfile") == "n0 slots=2 type=a100-sxm4-80 # gpus 2,3\nn1 slots=4 type=v100-sxm2\n");
  CHECK(text("conf/train/parallelism.yaml") ==
        "# Merged by FlagScale with model.yaml, which is yours.\n"
        "system:\n"
        "  tensor_model_parallel_size: 2\n"
        "  context_parallel_size: 1\n"
        "  pipeline_model_parallel_size: 2\n"
        "  sequence_parallel: False\n"
        "  use_distributed_optimizer: True\n"
        "  overlap_grad_reduce: True\n"
        "  hetero:\n"
        "    enable_hetero: True\n"
        "    hetero_pipeline_layer_split: [3, 1]\n"
        "    # tp, cp, ep, dp, pp of each mesh\n"
        "    hetero_process_meshes: [2, 1, 1, 1, 1, 2, 1, 1, 2, 1]\n"
        "    hetero_device_types: [\"a100-sxm4-80\", \"v100-sxm2\"]\n"
        "    hetero_current_device_type: \"a100-sxm4-80\"\n"
        "    standalone_embedding_stage: False\n"
        "    use_partial_reduce_for_shared_embedding: True\n"
        "  precision:\n"
        "    fp16: True\n"
        "    accumulate_allreduce_grads_in_fp32: True\n"
        "model:\n"
        "  micro_batch_size: 8\n"
        "  global_batch_size: 16\n"
        "  optimizer:\n"
        "    optimizer: adam\n");
  CHECK(text("conf/train.yaml").find("n0:\n        CUDA_VISIBLE_DEVICES: \"2,3\"\n") !=
        std::string::npos);
  CHECK(trainers_of(mixed.experiment->network, mixed.experiment->cluster, mixed.plan) ==
        std::vector<Trainer>{Trainer::flagscale});
}

TEST_CASE("launch: no name of a machine is a command of the shell that reads the scripts") {
  for (const std::string name : {"$(reboot)", "a'; reboot; '", "a b", "-e", "a\nb"}) {
    CAPTURE(name);
    const Made pipeline = made(machines, 4, [](experiment::Request& request) {
      request.tensor_parallel = request.data_parallel = 2;
      request.pipeline_parallel = 2;
    });
    Cluster cluster = pipeline.experiment->cluster;
    cluster.nodes.front().name = name;
    for (const Trainer trainer :
         {Trainer::megatron, Trainer::flagscale, Trainer::deepspeed, Trainer::torchtitan}) {
      CHECK_THROWS_AS(
          (void)launch_files(trainer, pipeline.experiment->network, cluster, pipeline.plan),
          InputError);
    }
    CHECK_THROWS_WITH_AS(
        (void)launch_files(Trainer::megatron, pipeline.experiment->network, cluster, pipeline.plan),
        ("--launch: a machine called '" + name +
         "'; accepted: names of letters, digits, '.', '-' and '_'")
            .c_str(),
        InputError);
  }
}

TEST_CASE("launch: each trainer refuses what its files have no words for") {
  const auto refused = [](const Made& of, Trainer trainer) -> std::string {
    try {
      (void)launch_files(trainer, of.experiment->network, of.experiment->cluster, of.plan);
    } catch (const InputError& error) {
      return error.what();
    }
    return "carried";
  };
  std::string uneven = mixed_layout;
  uneven.replace(uneven.rfind("groups"), std::string::npos,
                 "groups = [[\"n1.gpu0\", \"n1.gpu1\"], [\"n1.gpu2\", \"n1.gpu3\"]]\n"
                 "samples = [5, 3]\n");
  CHECK(refused(mixed_stages(uneven), Trainer::flagscale) ==
        "--launch: FlagScale cannot run this plan: the replicas of a stage have unequal shares; "
        "accepted: another --dp or --micro-batches; in a layout equal samples");
  CHECK(refused(mixed_stages(mixed_layout), Trainer::megatron).find("--launch flagscale") !=
        std::string::npos);
  const Made pipeline = made(machines, 4, [](experiment::Request& request) {
    request.tensor_parallel = 2;
    request.pipeline_parallel = 2;
    request.data_parallel = 2;
    request.reduce_precision = Precision::fp32;
    request.zero_stage = 1;
  });
  CHECK(refused(pipeline, Trainer::deepspeed).find("accepted: --pp 1, or --launch megatron") !=
        std::string::npos);
  CHECK(refused(pipeline, Trainer::torchtitan).find("accepted: --sequence-parallel") !=
        std::string::npos);
  CHECK(trainers_of(pipeline.experiment->network, pipeline.experiment->cluster, pipeline.plan) ==
        std::vector<Trainer>{Trainer::megatron, Trainer::flagscale});
}

TEST_CASE("launch: DeepSpeed's and torchtitan's files, by hand") {
  const Made sharded = made(machines, 4, [](experiment::Request& request) {
    request.tensor_parallel = 2;
    request.pipeline_parallel = 1;
    request.data_parallel = 4;
    request.micro_batches = 2;
    request.zero_stage = 3;
    request.reduce_precision = Precision::fp32;
  });
  const Launch deepspeed = launch_files(Trainer::deepspeed, sharded.experiment->network,
                                        sharded.experiment->cluster, sharded.plan);
  // 16 samples, 2 micro-batches, 4 replicas: 2 samples of each at a time.
  CHECK(deepspeed.files.front().text ==
        "{\n\"train_batch_size\": 16,\n\"train_micro_batch_size_per_gpu\": 2,\n"
        "\"gradient_accumulation_steps\": 2,\n\"bf16\": {\n\"enabled\": true\n},\n"
        "\"communication_data_type\": \"fp32\",\n\"zero_optimization\": {\n\"stage\": 3,\n"
        "\"overlap_comm\": true\n},\n"
        "\"tensor_parallel\": {\n\"autotp_size\": 2\n}\n}\n");
  const Made pipeline = made(machines, 4, [](experiment::Request& request) {
    request.tensor_parallel = 1;
    request.pipeline_parallel = 2;
    request.data_parallel = 4;
    request.micro_batches = 2;
    request.zero_stage = 2;
    request.reduce_precision = Precision::fp32;
    request.recompute = strategies::Recompute::op;
  });
  const Launch torchtitan = launch_files(Trainer::torchtitan, pipeline.experiment->network,
                                         pipeline.experiment->cluster, pipeline.plan);
  CHECK(torchtitan.files.front().text ==
        "# For torchtitan 0.2. Add the tables of the model and its data, or copy these to yours.\n"
        "[training]\nlocal_batch_size = 4\nglobal_batch_size = 16\n"
        "mixed_precision_param = \"bfloat16\"\nmixed_precision_reduce = \"float32\"\n\n"
        "[optimizer]\nname = \"AdamW\"\n\n[parallelism]\ndata_parallel_replicate_degree = 1\n"
        "data_parallel_shard_degree = 4\ntensor_parallel_degree = 1\ncontext_parallel_degree = 1\n"
        "pipeline_parallel_degree = 2\nfsdp_reshard_after_forward = \"never\"\n"
        "pipeline_parallel_schedule = \"1F1B\"\npipeline_parallel_microbatch_size = 2\n"
        "module_fqns_per_model_part = [\n"
        "  [\"tok_embeddings\", \"layers.0\", \"layers.1\"],\n"
        "  [\"layers.2\", \"layers.3\", \"norm\", \"output\"],\n]\n\n"
        "[activation_checkpoint]\nmode = \"selective\"\nselective_ac_option = \"op\"\n");
}

}  // namespace
}  // namespace parsim::report
