// Launch files are read back as the plan that they were written for.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "experiment/experiment.hpp"
#include "experiment/run.hpp"
#include "experiment/trainer_file.hpp"
#include "experiment/trainer_run.hpp"
#include "report/launch.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/program.hpp"
#include "tests/support/refusal.hpp"

namespace parsim::report {
namespace {

const std::string two_machines = "nodes:2x4,device=a100-sxm4-80,intra=300GB/s,inter=25GB/s";
const std::string eight_blocks =
    "gpt:layers=8,hidden=64,heads=4,seq_length=32,vocab_size=1024";  // of which nothing is padded

/// Degrees whose product is eight, and what goes with them.
experiment::Request drawn(std::mt19937_64& random) {
  const auto one_of = [&](auto... values) {
    const std::vector<std::common_type_t<decltype(values)...>> all{values...};
    return all[random() % all.size()];
  };
  experiment::Request request;
  request.network = eight_blocks;
  request.cluster = two_machines;
  request.batch = 32;
  request.precision = one_of(Precision::bf16, Precision::fp32, Precision::fp16);
  request.reduce_precision =
      request.precision == Precision::bf16 && random() % 2 == 0 ? Precision::bf16 : Precision::fp32;
  request.optimizer = one_of(Optimizer::adam, Optimizer::adam, Optimizer::sgd);
  request.tensor_parallel = one_of(1, 2, 4);
  request.context_parallel = *request.tensor_parallel < 4 && random() % 4 == 0 ? 2 : 1;
  const std::int32_t left = 8 / (*request.tensor_parallel * *request.context_parallel);
  request.pipeline_parallel = left > 1 ? one_of(1, 2) : 1;
  request.data_parallel = left / *request.pipeline_parallel;
  request.micro_batches = one_of(1, 2, 4);
  request.sequence_parallel = *request.tensor_parallel > 1 && random() % 2 == 0;
  request.tensor_overlap = request.sequence_parallel && random() % 2 == 0;
  const bool routed = request.sequence_parallel || request.context_parallel == 2;
  if (routed && random() % 2 == 0) {
    request.network += ",experts=4";
    request.expert_parallel = one_of(1, 2, 4);
    request.expert_tensor_parallel =
        request.sequence_parallel ? one_of(1, *request.tensor_parallel) : *request.tensor_parallel;
  }
  request.zero_stage = one_of(0, 1, 2, 3);
  if (*request.pipeline_parallel > 1 && random() % 3 == 0) {
    request.virtual_pipeline = 2;
    request.micro_batches = 4;
  }
  request.recompute =
      one_of(strategies::Recompute::none, strategies::Recompute::full, strategies::Recompute::op);
  using enum strategies::ContextExchange;
  if (request.context_parallel == 2) request.context_exchange = one_of(p2p, all_gather, a2a);
  return request;
}

TEST_CASE("launch: what was written is read back as the same step") {
  std::mt19937_64 random(20261125);
  const int count = testing::long_tests() ? 300 : 45;
  std::vector<int> carried(spellings_of<Trainer>().size(), 0);
  int experts_of_parts = 0;  // divided among devices with parts of the tokens
  for (int i = 0; i < count; ++i) {
    const experiment::Request request = drawn(random);
    const experiment::Experiment experiment(request);
    Plan plan;
    try {
      plan = make_plan(experiment, strategies::strategy("tensor", "test")).plan;
    } catch (const InputError&) {
      continue;
    }
    for (const Trainer trainer : trainers_of(experiment.network, experiment.cluster, plan)) {
      // Of one replica there is nothing to shard, so that torchtitan's file has no word for it; the
      // plan shards what tensor-parallel groups hold in common.
      const bool alone = request.data_parallel == 1 && request.context_parallel == 1;
      if (trainer == Trainer::torchtitan && alone && request.zero_stage > 0) {
        continue;
      }
      CAPTURE(i);
      CAPTURE(to_text(trainer));
      const testing::TemporaryFolder folder;
      std::filesystem::create_directories(folder.path("conf/train"));
      for (const LaunchFile& file :
           launch_files(trainer, experiment.network, experiment.cluster, plan).files) {
        folder.write(file.name, file.text);
      }
      experiment::Request again;
      again.network = request.network;
      again.cluster = request.cluster;
      again.layout_file = experiment::trainer_file_in(folder.folder());
      // The script decides these.
      const bool accelerate = trainer == Trainer::accelerate;
      if (accelerate || trainer == Trainer::deepspeed) {
        again.optimizer = request.optimizer;
        again.given = {"--optimizer"};
        const bool fsdp = accelerate && request.zero_stage >= 2 && request.data_parallel > 1;
        if (!fsdp || request.recompute == strategies::Recompute::none) {
          again.recompute = request.recompute;
          again.given.insert("--recompute");
        }
      }
      if (accelerate) {
        again.batch = request.batch;
        if (request.zero_stage != 1 || request.data_parallel == 1) {
          again.micro_batches = request.micro_batches;
          again.given.insert("--micro-batches");
        }
      }
      again.given.insert("--fusion");  // with the kernels of `experiment`
      const experiment::Experiment read_back(again);
      const Plan same = make_plan(read_back, experiment::layout_strategy()).plan;
      const Plan as_run = run_by(to_text(trainer), experiment, plan);
      CHECK(run_plan(read_back, {same, {}, {}}).result.step_time.count() ==
            testing::approx(run_plan(experiment, {as_run, {}, {}}).result.step_time.count())
                .epsilon(1e-9));
      ++carried[static_cast<std::size_t>(trainer)];
      if (request.context_parallel == 2 && request.expert_parallel.value_or(1) > 1)
        ++experts_of_parts;
    }
  }
  for (const int number : carried) CHECK(number >= count / 30);
  CHECK(experts_of_parts > 0);
}

TEST_CASE("launch: torchtitan's pipelines keep gathered weights") {
  experiment::Request request;
  request.network = eight_blocks;
  request.cluster = two_machines;
  request.batch = 16;
  request.tensor_parallel = 1;
  request.pipeline_parallel = request.micro_batches = 2;
  request.optimizer = Optimizer::adam;
  request.precision = Precision::bf16;
  const auto refusal = [&](std::int32_t zero_stage) -> std::string {
    request.zero_stage = zero_stage;
    const experiment::Experiment asked(request);
    const Plan plan = make_plan(asked, strategies::strategy("tensor", "test")).plan;
    try {
      (void)launch_files(Trainer::torchtitan, asked.network, asked.cluster, plan);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  CHECK(refusal(2) == "");
  CHECK(refusal(3) ==
        "--launch: torchtitan cannot run this plan: its stages free gathered weights after "
        "each pass, which PyTorch's pipelines do after forward passes alone; accepted: --zero 2");
}

TEST_CASE("launch: torchtitan's groups and pipelines without FSDP train in FP32 alone") {
  experiment::Request request;
  request.network = eight_blocks;
  request.cluster = two_machines;
  request.batch = 16;
  request.micro_batches = 2;
  request.optimizer = Optimizer::adam;
  const auto refusal = [&](std::int32_t tp, std::int32_t pp, Precision precision) -> std::string {
    request.tensor_parallel = tp;
    request.pipeline_parallel = pp;
    request.data_parallel = 8 / tp / pp;
    request.sequence_parallel = tp > 1;
    request.zero_stage = *request.data_parallel > 1 ? 2 : 0;
    request.precision = precision;
    const experiment::Experiment asked(request);
    const Plan plan = make_plan(asked, strategies::strategy("tensor", "test")).plan;
    const std::vector<Trainer> able = trainers_of(asked.network, asked.cluster, plan);
    const bool listed = std::find(able.begin(), able.end(), Trainer::torchtitan) != able.end();
    const std::string said = testing::refusal_of(
        [&] { (void)launch_files(Trainer::torchtitan, asked.network, asked.cluster, plan); });
    CHECK(listed == (said == "accepted"));
    return said;
  };
  request.reduce_precision = Precision::fp32;
  for (const auto& [tp, pp] : {std::pair{4, 2}, std::pair{2, 4}}) {
    CHECK(refusal(tp, pp, Precision::bf16) ==
          "--launch: torchtitan cannot run this plan: its precision is bf16, and torchtitan trains "
          "tensor-parallel groups and pipelines without FSDP in fp32; accepted: --precision fp32, "
          "or --zero 2 or 3 with --dp 2 or more");
    CHECK(refusal(tp, pp, Precision::fp32) == "accepted");
  }
  CHECK(refusal(2, 2, Precision::bf16) == "accepted");
}

TEST_CASE("launch: ZeRO groups of one GPU are not written for trainers with FSDP") {
  // Such a file says that FSDP replicates and shards nothing, which neither trainer accepts.
  experiment::Request request;
  request.network = eight_blocks;
  request.cluster = two_machines;
  request.batch = 16;
  request.micro_batches = 1;
  request.tensor_parallel = 4;
  request.data_parallel = 2;
  request.pipeline_parallel = 1;
  request.optimizer = Optimizer::adam;
  request.precision = Precision::bf16;
  const auto refusal = [&](Trainer trainer, ZeroGroup group) {
    request.sequence_parallel = trainer == Trainer::torchtitan;
    request.reduce_precision = request.sequence_parallel ? Precision::fp32 : Precision::bf16;
    request.zero_stage = 3;
    request.zero_group = group;
    const experiment::Experiment asked(request);
    const Plan plan = make_plan(asked, strategies::strategy("tensor", "test")).plan;
    return testing::refusal_of(
        [&] { (void)launch_files(trainer, asked.network, asked.cluster, plan); });
  };
  for (const Trainer trainer : {Trainer::torchtitan, Trainer::accelerate}) {
    for (const ZeroGroup group : {ZeroGroup{.node = true}, ZeroGroup{.ranks = 1}}) {
      CHECK(refusal(trainer, group) ==
            fmt::format("--launch: {} cannot run this plan: its ZeRO groups have one GPU each, so "
                        "that FSDP shards nothing; accepted: --zero 0, or a larger --zero-group",
                        to_text(trainer)));
    }
    CHECK(refusal(trainer, {}) == "accepted");
  }
}

TEST_CASE("launch: parts of the tokens shard with replicas, and read back they do") {
  experiment::Request request;
  request.network = eight_blocks;
  request.cluster = two_machines;
  request.batch = 16;
  request.tensor_parallel = request.pipeline_parallel = request.micro_batches = 1;
  request.context_parallel = 2;
  request.zero_stage = 1;
  request.optimizer = Optimizer::adam;
  request.precision = Precision::bf16;
  request.zero_group = {4, false};  // of 8 devices
  const experiment::Experiment experiment(request);
  const Plan plan = make_plan(experiment, strategies::strategy("tensor", "test")).plan;
  for (const Trainer trainer : {Trainer::megatron, Trainer::torchtitan}) {
    CAPTURE(to_text(trainer));
    const bool megatron = trainer == Trainer::megatron;
    Plan own = plan;
    if (!megatron) {  // its FSDP shards gradients and weights, too
      request.zero_stage = 3;
      own = make_plan(experiment::Experiment(request), strategies::strategy("tensor", "test")).plan;
    }
    const testing::TemporaryFolder folder;
    for (const LaunchFile& file :
         launch_files(trainer, experiment.network, experiment.cluster, own).files) {
      folder.write(file.name, file.text);
    }
    const std::string text =
        testing::read_text(folder.path(megatron ? "run.sh" : "parallelism.toml"));
    CAPTURE(text);
    CHECK(text.find(megatron ? "--num-distributed-optimizer-instances '2'"
                             : "data_parallel_replicate_degree = 2\n"
                               "data_parallel_shard_degree = 2\n") != std::string::npos);
    experiment::Request again;
    again.network = request.network;
    again.cluster = request.cluster;
    again.layout_file = experiment::trainer_file_in(folder.folder());
    const experiment::Experiment read_back(again);
    CHECK(read_back.layout->zero_group == ZeroGroup{4, false});
    CHECK(read_back.layout->context == 2);
  }
}

TEST_CASE("launch: a convolutional network's file of DeepSpeed is read back as the same step") {
  experiment::Request request;
  request.network = "lenet5";
  request.cluster = two_machines;
  request.batch = 64;
  request.micro_batches = 2;
  request.zero_stage = 1;
  request.optimizer = Optimizer::adam;
  const experiment::Experiment experiment(request);
  const Plan plan = make_plan(experiment, strategies::strategy("data", "test")).plan;
  CHECK(trainers_of(experiment.network, experiment.cluster, plan) ==
        std::vector<Trainer>{Trainer::deepspeed, Trainer::accelerate});
  const testing::TemporaryFolder folder;
  for (const LaunchFile& file :
       launch_files(Trainer::deepspeed, experiment.network, experiment.cluster, plan).files) {
    folder.write(file.name, file.text);
  }
  experiment::Request again;
  again.network = request.network;
  again.cluster = request.cluster;
  again.layout_file = experiment::trainer_file_in(folder.folder());
  again.optimizer = request.optimizer;
  again.given = {"--optimizer"};
  const experiment::Experiment read_back(again);
  const Plan same = make_plan(read_back, experiment::layout_strategy()).plan;
  CHECK(
      run_plan(read_back, {same, {}, {}}).result.step_time.count() ==
      testing::approx(run_plan(experiment, {plan, {}, {}}).result.step_time.count()).epsilon(1e-9));
}

}  // namespace
}  // namespace parsim::report
