// Megatron-LM's arguments: those that change a step in ways that nothing here expresses.
#include <doctest/doctest.h>

#include <string>
#include <utility>
#include <vector>

#include "experiment/experiment.hpp"
#include "experiment/trainer_file.hpp"
#include "tests/support/refusal.hpp"

namespace parsim::experiment {
namespace {

LayoutFile of_script(const std::string& more) {
  Request request;
  request.network = "gpt:layers=4,hidden=64,heads=4,seq_length=32,vocab_size=256";
  request.cluster = "nodes:1x4,device=h100-sxm5,intra=450GB/s,inter=25GB/s";
  const Experiment experiment(request);
  return read_trainer_file(
      "x --bf16 --micro-batch-size 1 --global-batch-size 8 --overlap-grad-reduce " + more, "run.sh",
      experiment.network, experiment.cluster, {});
}

std::string script_refused(const std::string& more) {
  return testing::refusal_of([&] { (void)of_script(more); });
}

TEST_CASE("megatron: its FSDP sums gradients in the precision of the weights by default") {
  // Before, in FP32 as without FSDP: a step of 399 ms took 532.
  const std::string fsdp =
      "--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params ";
  CHECK(of_script("").reduce_precision == Precision::fp32);
  CHECK(of_script(fsdp).reduce_precision == Precision::bf16);
  CHECK(of_script(fsdp + "--megatron-fsdp-main-grads-dtype fp32").reduce_precision ==
        Precision::fp32);
  CHECK(of_script(fsdp + "--megatron-fsdp-main-grads-dtype bf16").reduce_precision ==
        Precision::bf16);
  CHECK(of_script("--use-megatron-fsdp --data-parallel-sharding-strategy no_shard")
            .reduce_precision == Precision::fp32);
  CHECK(script_refused(fsdp + "--megatron-fsdp-grad-comm-dtype fp32") ==
        "run.sh:1:megatron-fsdp-grad-comm-dtype: 'fp32'; accepted: auto, as parsim sums gradients "
        "in the precision that they have");
  CHECK(script_refused(fsdp + "--megatron-fsdp-main-grads-dtype fp16") ==
        "run.sh:1:megatron-fsdp-main-grads-dtype: 'fp16'; accepted: auto, fp32 or bf16");
  CHECK(script_refused(fsdp + "--megatron-fsdp-main-params-dtype bf16") ==
        "run.sh:1:megatron-fsdp-main-params-dtype: 'bf16'; accepted: fp32");
  CHECK(script_refused(fsdp + "--outer-dp-sharding-strategy optim") ==
        "run.sh:1:outer-dp-sharding-strategy: 'optim'; accepted: no_shard");
}

TEST_CASE("megatron: shards of weights and parts of overlaps are refused by name") {
  const std::string tensor = "--tensor-model-parallel-size 2 --sequence-parallel ",
                    shards = tensor + "--tensor-parallel-num-weight-shards ";
  CHECK(script_refused(shards + "2") == "accepted");
  CHECK(script_refused(shards + "4") ==
        "run.sh:1:tensor-parallel-num-weight-shards: '4'; accepted: --use-megatron-fsdp to shard "
        "weights");
  for (const char* one : {"no-tp-comm-overlap-ag", "disable-tp-comm-bulk-dgrad"}) {
    CHECK(script_refused(tensor + "--tp-comm-overlap --" + one)
              .starts_with("run.sh:1:" + std::string(one) + ": "));
    CHECK(script_refused(tensor + "--" + one) == "accepted");
  }
}

TEST_CASE("megatron: arguments that change buckets, gathers or layers are not ignored") {
  const std::vector<std::pair<std::string, std::string>> refused{
      // Before, buckets had the default size: a step of 135 ms took 110.
      {"ddp-num-buckets 1", "'1'; accepted: --ddp-bucket-size"},
      {"overlap-param-gather-with-optimizer-step", "accepted: --overlap-param-gather alone"},
      {"hybrid-layer-pattern M*-M*-", "'M*-M*-'; accepted: blocks of a transformer"},
      {"linear-attention-freq 4", "'4'; accepted: attention in all blocks"},
      {"fp8-format hybrid --fp8-dot-product-attention", "accepted: attention in 16 bits"}};
  for (const auto& [argument, message] : refused) {
    CAPTURE(argument);
    const std::string refusal =
        testing::refusal_of([&, text = "--" + argument] { (void)of_script(text); });
    CHECK(refusal.starts_with("run.sh:1:"));
    CHECK(refusal.ends_with(message));
  }
  CHECK(of_script("--fp8-format hybrid").notes.empty());
  CHECK(of_script("--fp8-format hybrid --fp8-param-gather").notes ==
        std::vector<std::string>{"run.sh:1:fp8-param-gather: weights are gathered in 16 bits here, "
                                 "which takes longer"});
}

TEST_CASE("megatron: arguments that no option expresses are refused by name") {
  // Megatron-LM's own spellings, each with a value that its parser takes.
  for (const std::string argument : {"use-tp-pp-dp-mapping",
                                     "encoder-num-layers 2",
                                     "optimizer-cpu-offload",
                                     "cpu-offloading-num-layers 1",
                                     "distribute-saved-activations",
                                     "mtp-num-layers 1",
                                     "account-for-embedding-in-pipeline-split",
                                     "account-for-loss-in-pipeline-split",
                                     "use-torch-fsdp2",
                                     "fp4-format e2m1",
                                     "fine-grained-activation-offloading",
                                     "hybrid-context-parallel",
                                     "rampup-batch-size 8 8 100",
                                     "use-precision-aware-optimizer",
                                     "moe-layer-recompute",
                                     "moe-expert-capacity-factor 1.0",
                                     "moe-pad-expert-input-to-capacity",
                                     "overlap-moe-expert-parallel-comm",
                                     "delay-wgrad-compute",
                                     "moe-shared-expert-overlap",
                                     "window-size 127,0",
                                     "freeze-all-layers",
                                     "overlap-p2p-communication-warmup-flush",
                                     "ddp-num-buckets 1",
                                     "ddp-reduce-scatter-with-fp32-accumulation",
                                     "fp8-dot-product-attention",
                                     "fp8-multi-head-attention",
                                     "fp8-output-proj",
                                     "te-precision-config-file x.yaml",
                                     "fp32-residual-connection",
                                     "defer-embedding-wgrad-compute",
                                     "overlap-param-gather-with-optimizer-step",
                                     "use-layer-wise-distributed-optimizer",
                                     "enable-full-sharding-in-hsdp",
                                     "suggested-communication-unit-size 400000000",
                                     "heterogeneous-layers-config-path x.json",
                                     "hybrid-override-pattern M*-M*-",
                                     "linear-attention-freq 4",
                                     "experimental-attention-variant gated_delta_net",
                                     "enable-mhc-connections",
                                     "moe-latent-size 32",
                                     "enable-zero-bubble"}) {
    CAPTURE(argument);
    const std::string name = argument.substr(0, argument.find(' '));
    CHECK(script_refused("--" + argument).starts_with("run.sh:1:" + name + ": "));
  }
}

}  // namespace
}  // namespace parsim::experiment
