// Rows whose columns contradict each other, or are of a plan that the row does not have.
#include "validation/agreeing_columns.hpp"

#include <doctest/doctest.h>

#include <string>

#include "tests/support/refusal.hpp"
#include "validation/measurements.hpp"
#include "validation/published_collective.hpp"
#include "validation/published_machines.hpp"
#include "validation/published_training.hpp"

namespace parsim::validation {
namespace {

Claim claim_with(const std::string& columns, const std::string& fields) {
  return read_measurements("network,n_gpus,precision,value,unit," + columns +
                               "\nlenet5,8,fp16,16,ms," + fields + "\n",
                           "f.csv", "f")
      .at(0);
}

constexpr const char* a100_machine = "\"nodes:1x8,device=a100-sxm4-80,intra=240GB/s,inter=12GB/s\"";

std::string step_refusal(const std::string& columns, const std::string& fields) {
  return testing::refusal_of([&] {
    static_cast<void>(Training(
        claim_with("gpu,cluster," + columns, std::string("a100,") + a100_machine + "," + fields)));
  });
}

void check_gpu_in(const std::string& gpu, const std::string& cluster) {
  static_cast<void>(cluster_of(claim_with("gpu,cluster", gpu + "," + cluster)));
}

}  // namespace

TEST_CASE("agreeing columns: a row's GPU is one of its cluster's") {
  CHECK(testing::refusal_of([&] { check_gpu_in("h100-sxm5", a100_machine); }) ==
        "f:2:gpu: h100-sxm5, but the cluster has a100-sxm4-80; accepted: a GPU of the cluster "
        "(nodes:1x8,device=a100-sxm4-80,intra=240GB/s,inter=12GB/s)");
  CHECK_THROWS_AS(check_gpu_in("A100-PCIe", a100_machine), InputError);
  for (const char* same : {"A100-SXM4-80GB", "NVIDIA A100-SXM4-80GB", "A100", "my-own-card", ""}) {
    CAPTURE(same);
    CHECK_NOTHROW(check_gpu_in(same, a100_machine));
  }
  const std::string mixed = "mixed-p100-v100";
  CHECK_NOTHROW(check_gpu_in("V100", mixed));
  CHECK_NOTHROW(check_gpu_in("P100", mixed));
  CHECK_THROWS_AS(check_gpu_in("T4", mixed), InputError);
  // A machine known by its alias.
  const Claim alias = claim_with("gpu,machine", "P100,\"DGX-1 with V100\"");
  CHECK_THROWS_AS(static_cast<void>(cluster_of(alias)), InputError);
}

TEST_CASE("agreeing columns: batches of a step, and of each GPU") {
  CHECK(step_refusal("batch_per_gpu,global_batch", "32,128") ==
        "f:2:global_batch: 128, but 8 GPUs with 32 samples each have 256; accepted: global_batch = "
        "batch_per_gpu x n_gpus");
  CHECK(step_refusal("batch_per_gpu,global_batch", "32,256") == "accepted");
  const auto samples = [](const char* columns, const char* fields) {
    return Training(claim_with(std::string("gpu,") + columns, std::string("a100,") + fields))
        .samples();
  };
  CHECK(samples("batch_per_gpu,global_batch", "16,") == 128);
  CHECK(samples("batch_per_gpu,global_batch", ",64") == 64);  // was 32 x 8 in silence
  // 32 a GPU in silence once, as was a batch in a column of another name.
  CHECK(step_refusal("batch_per_gpu,global_batch", ",") ==
        "f:2:batch_per_gpu: a training step without its number of samples; accepted: "
        "batch_per_gpu, or global_batch of all GPUs");
  CHECK(step_refusal("batch_size", "512") ==
        "f:2:batch_size: '512' of a training step, in a column that is not read; accepted: column "
        "batch_per_gpu or global_batch");
  CHECK(step_refusal("batch_size,batch_per_gpu", "512,512") == "accepted");
  CHECK(testing::refusal_of([] {
          static_cast<void>(Training(
              read_measurements("network,precision,value,unit,gpu,batch_per_gpu,world_size\n"
                                "lenet5,fp16,16,ms,a100,32,8\n",
                                "f.csv", "f")
                  .at(0)));
        }) ==
        "f:2:world_size: '8' of a training step, in a column that is not read; accepted: "
        "column n_gpus or cluster");
  CHECK(step_refusal("batch_per_gpu,gradient_accumulation_steps", "8,4")
            .ends_with("accepted: column grad_accum"));
  for (const char* other :
       {"tp_size", "pp_size", "tensor_parallel_size", "tensor_model_parallel_size",
        "pipeline_model_parallel_size", "TP", "grad_accum_steps", "accumulation_steps",
        "num_microbatches", "micro_batches", "zero_optimization_stage", "fsdp",
        "gradient_checkpointing", "activation_recompute", "context_length", "max_seq_len"}) {
    const std::string name = other;
    CAPTURE(name);
    CHECK(step_refusal("batch_per_gpu," + name, "8,4")
              .starts_with("f:2:" + name + ": '4' of a training step, in a column that is not"));
  }
  // Before, equal stages were predicted: 47 samples/s where 2 and 3 x 10 blocks reach 40.
  CHECK(step_refusal("micro_batch,layers_per_stage", "8,2-10-10-10") ==
        "f:2:layers_per_stage: '2-10-10-10' of a training step, in a column that is not read; "
        "accepted: column layout or layout_file");
  CHECK(step_refusal("micro_batch,layers_per_stage", "8,32") == "accepted");
  // What an empty column says, too.
  CHECK(step_refusal("batch_per_gpu,tp_size,gradient_checkpointing,fsdp", "8,1,False,0") ==
        "accepted");
  CHECK(step_refusal("parallelism,micro_batch,fsdp", "FULL_SHARD,8,full_shard") == "accepted");
}

TEST_CASE("agreeing columns: a batch of unknown meaning agrees with the others, or is refused") {
  // Before, a column "batch" next to micro_batch counted for nothing: 4 samples a step, not 256.
  const std::string accepted =
      "; accepted: batch_per_gpu, or global_batch of all GPUs, and where micro_batch is not all of "
      "a replica's samples grad_accum";
  CHECK(step_refusal("micro_batch,batch", "4,256") ==
        "f:2:batch: 256, but the other columns give 32" + accepted);
  CHECK(step_refusal("micro_batch,batch", "4,32") == "accepted");
  CHECK(step_refusal("micro_batch,grad_accum,batch", "4,8,256") == "accepted");
  CHECK(step_refusal("micro_batch,grad_accum,batch", "4,8,128") ==
        "f:2:batch: 128, but the other columns give 256" + accepted);
  CHECK(step_refusal("batch_per_gpu,batch", "4,32") == "accepted");
  CHECK(step_refusal("batch_per_gpu,batch", "4,4") == "accepted");
  CHECK(step_refusal("batch_per_gpu,batch", "4,64") ==
        "f:2:batch: 64, but the other columns give 32" + accepted);
  CHECK(step_refusal("global_batch,batch", "32,4") ==
        "f:2:batch: 4, but the other columns give 32" + accepted);
}

TEST_CASE("agreeing columns: a plan without micro_batch is data parallelism, or refused") {
  CHECK(step_refusal("tp", "8") ==
        "f:2:tp: 8, but without micro_batch the row is data parallelism; accepted: 1, or with "
        "column micro_batch, the samples of a replica at once");
  for (const char* other : {"tp=2", "cp=2", "pp=2", "vp=2", "ep=2", "etp=2", "dp=4", "zero_stage=1",
                            "recompute=full", "recompute=yes", "recompute_every=2", "layout=1/1",
                            "grad_accum=4", "sequence_parallel=yes"}) {
    CAPTURE(other);
    const std::string text = other;
    const std::size_t equals = text.find('=');
    const std::string found = step_refusal(text.substr(0, equals), text.substr(equals + 1));
    CHECK(found.starts_with("f:2:" + text.substr(0, equals) + ": " + text.substr(equals + 1)));
  }
  CHECK(step_refusal("batch_per_gpu,tp,pp,dp,zero_stage,recompute,grad_accum",
                     "32,1,1,8,0,none,1") == "accepted");
  CHECK(step_refusal("batch_per_gpu,tp,pp,dp,zero_stage,recompute,grad_accum", "32,1,,,,no,") ==
        "accepted");
}

TEST_CASE(
    "agreeing columns: the batch of a step is of each GPU or of all, and collectives have two") {
  CHECK(step_refusal("batch", "64") ==
        "f:2:batch: '64' of a training step; accepted: batch_per_gpu, or global_batch of all GPUs");
  CHECK(step_refusal("batch,batch_per_gpu", "64,64") == "accepted");
  const Claim lonely =
      read_measurements("collective,size_bytes,time_us,cluster\nall_reduce,1048576,60,dgx-a100\n",
                        "f.csv", "f")
          .at(0);
  CHECK(testing::refusal_of([&] { PublishedCollective{lonely}; }) ==
        "f:2:n_gpus: a collective of one GPU; accepted: the number of GPUs that take part, 2 or "
        "more");
}

TEST_CASE("agreeing columns: gradients of data parallelism are summed as column bucket says") {
  const auto buckets = [](const std::string& bucket) {
    Claim claim = claim_with("gpu,cluster", std::string("a100,") + a100_machine);
    claim.what["network"] = "resnet50";
    claim.what["batch_per_gpu"] = "32";
    claim.what["bucket"] = bucket;
    const Training training(claim);
    const ExecDag& dag = training.dag();
    int sums = 0;
    for (std::size_t i = 0; i < dag.size(); ++i) {
      sums += dag.kind(OpId{i}) == OpKind::collective ? 1 : 0;
    }
    return sums;
  };
  CHECK(buckets("all") == 1);
  CHECK(buckets("") > 1);  // 25.6 million gradients in FP32, by 25 MiB
  CHECK(buckets("1MB") > buckets(""));
}

}  // namespace parsim::validation
