// accelerate's YAML: what its settings of FSDP and of parallelism change in the step.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "core/json.hpp"
#include "experiment/experiment.hpp"
#include "experiment/run.hpp"
#include "experiment/trainer_file.hpp"
#include "tests/support/program.hpp"
#include "tests/support/refusal.hpp"

namespace parsim::experiment {
namespace {

LayoutFile accelerate_file(
    const std::string& text,
    const std::string& network = "gpt:layers=8,hidden=64,heads=4,seq_length=32,vocab_size=256") {
  Request request;
  request.network = network;
  request.cluster = "nodes:2x4,device=a100-sxm4-80,intra=300GB/s,inter=25GB/s";
  const Experiment experiment(request);
  return read_trainer_file("num_processes: 8\nmixed_precision: bf16\ndistributed_type: " + text,
                           "a.yaml", experiment.network, experiment.cluster, 64);
}

template <class... Network>
std::string accelerate_refused(const std::string& text, const Network&... network) {
  return testing::refusal_of([&] { (void)accelerate_file(text, network...); });
}

TEST_CASE("accelerate: FSDP 1 without backward_prefetch gathers late in the backward pass") {
  // Before, a note said that the step was too short.
  const std::string start = "FSDP\nfsdp_config:\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n",
                    prefetch = start + "  fsdp_backward_prefetch: ";
  const auto late = [&](const std::string& text) {
    const LayoutFile file = accelerate_file(text);
    CHECK(file.notes.empty());
    return file.habits.late_gathers;
  };
  CHECK(late(start));
  CHECK(late(prefetch + "NO_PREFETCH\n"));
  for (const char* value : {"BACKWARD_PRE", "backward_pre", "BACKWARD_POST", "1", "2"}) {
    CHECK_FALSE(late(prefetch + value + "\n"));
  }
  CHECK_FALSE(late(prefetch + "NO_PREFETCH\n  fsdp_version: 2\n"));
  CHECK_FALSE(late(start + "  fsdp_version: 2\n"));
  CHECK(accelerate_refused(prefetch + "3\n") ==
        "a.yaml:6:fsdp-backward-prefetch: '3'; accepted: BACKWARD_PRE, BACKWARD_POST or "
        "NO_PREFETCH");
}

TEST_CASE("accelerate: late gathers are in the plan and in its file") {
  const testing::TemporaryFolder folder;
  Request request;
  request.network = "gpt:layers=4,hidden=64,heads=4,seq_length=32,vocab_size=256";
  request.cluster = "nodes:2x4,device=a100-sxm4-80,intra=240GB/s,inter=25GB/s";
  request.batch = 16;
  request.given = {"--batch"};
  for (const bool late : {false, true}) {
    request.layout_file = folder.write(
        "fsdp.yaml", std::string("num_processes: 8\nmixed_precision: bf16\ndistributed_type: FSDP\n"
                                 "fsdp_config:\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
                                 "  fsdp_backward_prefetch: ") +
                         (late ? "NO_PREFETCH\n" : "BACKWARD_PRE\n"));
    const Plan plan = make_plan(Experiment(request), layout_strategy()).plan;
    CHECK(plan.schedule.late_gathers == late);
    CHECK(plan_from_json(to_json(plan), "p.json") == plan);
  }
}

TEST_CASE("accelerate: FSDP that wraps no blocks sums one unit after the backward pass") {
  // The default of fsdp_auto_wrap_policy; before, blocks were wrapped in any case: 227 instead of
  // 293 ms and 31 instead of 55 GiB of Llama-3 8B on 8 H100.
  const std::string start = "FSDP\nfsdp_config:\n", two = start + "  fsdp_version: 2\n",
                    wrap = "  fsdp_auto_wrap_policy: ", grad = "  fsdp_sharding_strategy: ";
  for (const char* blocks : {"TRANSFORMER_BASED_WRAP", "transformer_based_wrap"}) {
    const LayoutFile wrapped = accelerate_file(two + wrap + blocks + "\n");
    CHECK(wrapped.zero_stage == 3);
    CHECK(!wrapped.bucket);
    CHECK(wrapped.notes.empty());
  }
  const std::string unit =
      ": FSDP without fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP sums all gradients after the "
      "backward pass";
  const std::string whole = " and keeps them and the weights whole until then: ZeRO 1 is simulated";
  const std::string once = ", which gathers weights once a step, not for each micro-batch";
  for (const std::string& text : {start, two, two + wrap + "NO_WRAP\n"}) {
    CAPTURE(text);
    const LayoutFile file = accelerate_file(text);
    CHECK(file.zero_stage == 1);
    CHECK(file.bucket == after_backward);
    const std::string at = text.ends_with("NO_WRAP\n") ? ":6:fsdp-auto-wrap-policy" : "";
    CHECK(file.notes == std::vector{"a.yaml" + at + unit + whole + once});
  }
  const LayoutFile kept = accelerate_file(start + grad + "SHARD_GRAD_OP\n");
  CHECK(kept.zero_stage == 1);
  CHECK(!kept.keeps_while_accumulating);
  CHECK(kept.notes == std::vector{"a.yaml" + unit + whole});
  const LayoutFile replicas = accelerate_file(start + grad + "NO_SHARD\n");
  CHECK(replicas.zero_stage == 0);
  CHECK(replicas.bucket == after_backward);
  CHECK(replicas.notes == std::vector{"a.yaml" + unit});

  CHECK(accelerate_refused(two + wrap + "SIZE_BASED_WRAP\n  fsdp_min_num_params: 100000\n") ==
        "a.yaml:6:fsdp-auto-wrap-policy: 'SIZE_BASED_WRAP'; accepted: TRANSFORMER_BASED_WRAP or "
        "NO_WRAP, as parsim has no units by size");
  CHECK(accelerate_refused(two + "  fsdp_activation_checkpointing: true\n") ==
        "a.yaml:6:fsdp-activation-checkpointing: 'true'; accepted: false, or "
        "fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP");
}

TEST_CASE(
    "accelerate: FSDP of a network without blocks has one unit, or classes that are refused") {
  // Before, buckets of 25 MiB were gathered and summed in both cases.
  const std::string start =
                        "FSDP\nfsdp_config:\n  fsdp_version: 2\n"
                        "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n",
                    classes = "  fsdp_transformer_layer_cls_to_wrap: ";
  for (const std::string& none : {std::string(), classes + "\n"}) {
    const LayoutFile file = accelerate_file(start + none, "resnet18");
    CHECK(file.zero_stage == 1);
    CHECK(file.bucket == after_backward);
    CHECK(file.notes ==
          std::vector<std::string>{
              "a.yaml:6:fsdp-auto-wrap-policy: FSDP of a network without transformer blocks sums "
              "all gradients after the backward pass and keeps them and the weights whole until "
              "then: ZeRO 1 is simulated, which gathers weights once a step, not for each "
              "micro-batch"});
  }
  CHECK(accelerate_refused(start + classes + "BasicBlock\n", "resnet18") ==
        "a.yaml:7:fsdp-transformer-layer-cls-to-wrap: 'BasicBlock'; accepted: none, for a network "
        "without transformer blocks, as parsim has no units of other classes");
  CHECK(accelerate_file(start + classes + "GPT2Block\n").zero_stage == 3);
}

TEST_CASE("accelerate: distributed_type NO launches one process") {
  // Before, eight replicas were read.
  CHECK(accelerate_refused("NO\n") ==
        "a.yaml:3:distributed-type: 'NO'; accepted: MULTI_GPU, FSDP or DEEPSPEED for 8 GPUs, as "
        "accelerate launches one process without");
}

TEST_CASE(
    "accelerate: a number of machines that the GPUs contradict, and words for a truth value") {
  CHECK(accelerate_file("MULTI_GPU\nnum_machines: 2\n").notes.empty());
  CHECK(accelerate_refused("MULTI_GPU\nnum_machines: 1\n") ==
        "a.yaml:4:num-machines: 1 machine for GPUs of 2 machines; accepted: 2, or a "
        "hostfile of those that are used");
  const std::string reshard =
      "FSDP\nfsdp_config:\n  fsdp_version: 2\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
      "  fsdp_reshard_after_forward: ";
  for (const char* value : {"true", "True", "t", "1"}) {
    CHECK(accelerate_file(reshard + value + "\n").zero_stage == 3);
  }
  for (const char* value : {"false", "f", "0"}) {
    CHECK(accelerate_file(reshard + value + "\n").zero_stage == 2);
  }
  CHECK(accelerate_file("FSDP\nfsdp_config:\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
                        "  fsdp_sharding_strategy: shard_grad_op\n")
            .zero_stage == 2);
  CHECK(accelerate_refused(reshard + "4\n") ==
        "a.yaml:7:fsdp-reshard-after-forward: '4'; accepted: true or false");
}

TEST_CASE("accelerate: FSDP 1 follows its sharding strategy and ignores reshard_after_forward") {
  // Before, fsdp_reshard_after_forward counted: accelerate launch gives a strategy in any case.
  const std::string start =
      "FSDP\nfsdp_config:\n  fsdp_backward_prefetch: BACKWARD_PRE\n"
      "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n";
  const LayoutFile full = accelerate_file(start + "  fsdp_reshard_after_forward: SHARD_GRAD_OP\n");
  CHECK(full.zero_stage == 3);
  CHECK(full.notes ==
        std::vector<std::string>{"a.yaml:7:fsdp-reshard-after-forward: FSDP 1 follows "
                                 "fsdp_sharding_strategy, FULL_SHARD where the file has none, not "
                                 "this"});
  CHECK(accelerate_file(start + "  fsdp_reshard_after_forward: FULL_SHARD\n").notes.empty());
  const LayoutFile grad = accelerate_file(start + "  fsdp_sharding_strategy: SHARD_GRAD_OP\n" +
                                          "  fsdp_reshard_after_forward: FULL_SHARD\n");
  CHECK(grad.zero_stage == 2);
}

TEST_CASE("accelerate: FSDP that keeps weights after forward is no slower than one that does not") {
  // Before, with one micro-batch it gathered them after the update, overlapping no kernel: 14 %
  // longer.
  const testing::TemporaryFolder folder;
  const auto step = [&](const std::string& reshard, std::int32_t micro_batches) {
    Request request;
    request.network = "gpt:layers=6,hidden=1024,heads=16,seq_length=512,vocab_size=1024";
    request.cluster = "nodes:2x2,device=h100-sxm5,intra=450GB/s,inter=50GB/s";
    request.layout_file = folder.write(
        "a.yaml",
        "distributed_type: FSDP\nmixed_precision: bf16\nnum_machines: 2\nnum_processes: 4\n"
        "fsdp_config:\n  fsdp_version: 2\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
        "  fsdp_reshard_after_forward: " +
            reshard + "\n");
    request.batch = 64 * micro_batches;
    request.micro_batches = micro_batches;
    request.given = {"--batch", "--micro-batches"};
    request.sim.engine = sim::Engine::fast;
    const Experiment experiment(request);
    return run_plan(experiment, make_plan(experiment, layout_strategy())).result.step_time;
  };
  for (const std::int32_t micro_batches : {1, 2}) {
    CHECK(step("false", micro_batches) < 1.001 * step("true", micro_batches));
  }
}

TEST_CASE("accelerate: former names are read, and names without their prefix are not lost") {
  const auto precision = [](const std::string& head) {
    Request request;
    request.network = "gpt:layers=2,hidden=64,heads=4,seq_length=32,vocab_size=256";
    request.cluster = "nodes:2x4,device=a100-sxm4-80,intra=300GB/s,inter=25GB/s";
    const Experiment experiment(request);
    return read_trainer_file(head + "num_processes: 8\ndistributed_type: MULTI_GPU\n", "a.yaml",
                             experiment.network, experiment.cluster, 64)
        .precision;
  };
  CHECK(precision("fp16: true\n") == Precision::fp16);
  CHECK(precision("fp16: false\n") == Precision::fp32);
  CHECK(precision("mixed_precision: bf16\nfp16: true\n") == Precision::bf16);
  CHECK(
      accelerate_refused("FSDP\nfsdp_config:\n  fsdp_version: 2\n  auto_wrap_policy: NO_WRAP\n") ==
      "a.yaml:6:auto-wrap-policy: a name without its prefix; accepted: fsdp_auto_wrap_policy");
  CHECK(accelerate_refused("MULTI_GPU\ndynamo_config:\n  backend: INDUCTOR\n") ==
        "a.yaml:5:backend: a name without its prefix; accepted: dynamo_backend");
}

TEST_CASE("accelerate: sizes of the parallelism count with MULTI_GPU, and else are refused") {
  // Before, with FSDP alone: tensor parallelism was read as eight whole replicas.
  const std::string sizes = "\nparallelism_config:\n  parallelism_config_";
  const LayoutFile tensor = accelerate_file("MULTI_GPU" + sizes + "tp_size: 8\n");
  CHECK(tensor.layout.stages.front().groups.size() == 1);
  CHECK(tensor.zero_stage == 0);
  CHECK(tensor.habits.whole_scores);
  const LayoutFile replicas = accelerate_file("MULTI_GPU" + sizes + "dp_replicate_size: 8\n");
  CHECK(replicas.layout.stages.front().groups.size() == 8);
  CHECK(accelerate_refused("MULTI_GPU" + sizes + "tp_size: 1\n") == "accepted");
  const auto refused = [&](const std::string& type, const std::string& name, int size) {
    return accelerate_refused(type + sizes + name + "_size: " + std::to_string(size) + "\n");
  };
  const std::string tp = "a.yaml:5:parallelism-config-tp-size: ",
                    shard = "a.yaml:5:parallelism-config-dp-shard-size: ",
                    copies = "a.yaml:5:parallelism-config-dp-replicate-size: ";
  CHECK(refused("MULTI_GPU", "tp", 4) ==
        tp + "'4'; accepted: 1 or 8 with distributed_type: MULTI_GPU");
  CHECK(refused("DEEPSPEED", "tp", 8) == tp + "'8'; accepted: 1 with distributed_type: DEEPSPEED");
  CHECK(refused("MULTI_GPU", "dp_shard", 8) ==
        shard + "'8'; accepted: 1 with distributed_type: MULTI_GPU");
  CHECK(refused("DEEPSPEED", "dp_replicate", 4) ==
        copies + "'4'; accepted: 1 or 8 with distributed_type: DEEPSPEED");
  CHECK(refused("FSDP\nfsdp_config:\n  fsdp_version: 1", "dp_shard", 8) ==
        "a.yaml:5:fsdp-version: '1'; accepted: 2 with a parallelism_config");
}

}  // namespace
}  // namespace parsim::experiment
