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
    (void)megatron_ranks(of.experiment->network, of.plan);
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
    CHECK(megatron_ranks(two.experiment->network, two.plan) == ranks);
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
  const std::vector<DeviceId> ranks = megatron_ranks(two.experiment->network, two.plan);
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

}  // namespace
}  // namespace parsim::report
