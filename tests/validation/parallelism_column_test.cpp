// What column `parallelism` of a measured step decides.
#include "validation/parallelism_column.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "tests/support/refusal.hpp"
#include "validation/measurements.hpp"
#include "validation/predict_published.hpp"
#include "validation/published_machines.hpp"
#include "validation/published_plan.hpp"
#include "validation/published_training.hpp"

namespace parsim::validation {
namespace {

/// A small GPT on eight A100, with fields of `columns`, as in "zero_stage,tp".
Claim claim_of(const std::string& parallelism, const std::string& columns = "micro_batch",
               const std::string& fields = "2") {
  return read_measurements(
             "network,n_gpus,gpu,cluster,precision,seq_len,value,unit,parallelism," + columns +
                 "\n\"gpt:layers=4,hidden=64,heads=4,seq_length=32,vocab_size=128\",8,a100,"
                 "\"nodes:1x8,device=a100-sxm4-80,intra=240GB/s\",bf16,32,16,ms,\"" +
                 parallelism + "\"," + fields + "\n",
             "f.csv", "f")
      .at(0);
}

ZeroSharding zero_of(const Claim& claim) {
  const Network network = networks::load_network(network_of(claim), {}, "test");
  const Cluster cluster = cluster_of(claim);
  const auto cost = sim::make_tile_costs(cluster);
  strategies::StrategyInput input{network, cluster, *cost};
  return published_plan(claim, input).layers[0].zero;
}

int stage(const std::string& parallelism, const std::string& zero_stage = "") {
  return zero_of(claim_of(parallelism, "micro_batch,zero_stage", "2," + zero_stage)).stage;
}

std::string parallelism_refusal(const std::string& parallelism,
                                const std::string& columns = "micro_batch",
                                const std::string& fields = "2") {
  const Claim claim = claim_of(parallelism, columns, fields);
  const std::string found = testing::refusal_of([&] { static_cast<void>(Training(claim)); });
  // What is counted as not predicted, and calibrates nothing.
  const std::string reason = PublishedPredictor::not_expressible(claim);
  CHECK((reason.empty() ? "accepted" : reason) == found);
  return found;
}

}  // namespace

TEST_CASE("parallelism: words of ZeRO and FSDP decide the stage where zero_stage is empty") {
  for (const auto& [text, expected] : {std::pair{std::string("FSDP FULL_SHARD"), 3},
                                       {"full_shard", 3},
                                       {"FSDP full-shard", 3},
                                       {"HYBRID_SHARD", 3},
                                       {"FSDP _HYBRID_SHARD_ZERO2", 2},
                                       {"HSDP", 3},
                                       {"DP sync: FSDP SHARD_GRAD_OP", 2},
                                       {"FSDP NO_SHARD", 0},
                                       {"FSDP", 3},
                                       {"FSDP2", 3},
                                       {"ZeRO-1 over 8", 1},
                                       {"ZeRO-2", 2},
                                       {"ZeRO 3", 3},
                                       {"zero3", 3},
                                       {"DeepSpeed ZeRO stage 3", 3},
                                       {"FULL_SHARD (ZeRO-3)", 3},
                                       {"FullyShardedDataParallel", 3},
                                       {"fully sharded data parallel", 3},
                                       {"fully_shard", 3},
                                       {"DeepSpeed stage 3", 3},
                                       {"Z2", 2},
                                       {"DP8", 0},
                                       {"DDP MP", 0},
                                       {"ZeRO-0", 0},
                                       {"DDP", 0},
                                       {"data", 0},
                                       {"", 0}}) {
    CAPTURE(text);
    CHECK(stage(text) == expected);
  }
  CHECK(stage("FSDP", "2") == 2);
  CHECK(stage("FSDP SHARD_GRAD_OP", "2") == 2);
  CHECK(stage("ZeRO", "1") == 1);
  const auto in_machines = [](const char* text) {
    return zero_of(claim_of(text)).group == ZeroGroup{0, true};
  };
  CHECK(in_machines("FSDP HYBRID_SHARD"));
  CHECK(in_machines("hybrid sharding"));
  CHECK(in_machines("HSDP"));
  CHECK_FALSE(in_machines("FSDP FULL_SHARD"));
}

TEST_CASE("parallelism: stages that contradict each other are refused") {
  const std::string accepted =
      "; accepted: one stage (FULL_SHARD and HYBRID_SHARD are 3, SHARD_GRAD_OP is 2)";
  CHECK(parallelism_refusal("FSDP FULL_SHARD", "micro_batch,zero_stage", "2,2") ==
        "f:2:parallelism: 'FSDP FULL_SHARD' names ZeRO stage 3, and column zero_stage stage 2" +
            accepted);
  CHECK(parallelism_refusal("FULL_SHARD, ZeRO-2") ==
        "f:2:parallelism: 'FULL_SHARD, ZeRO-2' names ZeRO stage 2, and also stage 3" + accepted);
  CHECK(parallelism_refusal("ZeRO") ==
        "f:2:parallelism: 'ZeRO' names ZeRO without its stage; accepted: ZeRO-1, ZeRO-2, ZeRO-3, "
        "or column zero_stage");
  CHECK(parallelism_refusal("ZeRO-3", "batch_per_gpu", "2") ==
        "f:2:parallelism: 'ZeRO-3' is ZeRO stage 3, but without micro_batch the row is data "
        "parallelism; accepted: with column micro_batch, the samples of a replica at once");
}

TEST_CASE("parallelism: a row that names its replicas is predicted as one that does not") {
  const auto value = [](const std::string& parallelism) {
    const Prediction row = PublishedPredictor({})(claim_of(parallelism));
    CHECK(row.reason == "");
    return row.value;
  };
  CHECK(value("DP8") == value(""));
  CHECK(value("DDP=8") == value("DDP"));
}

TEST_CASE("parallelism: what no plan has, and groups that no column has, are refused") {
  for (const char* text :
       {"ZeRO-3 + CPU offload", "FSDP with cpu_offload", "FSDP, LoRA", "QLoRA"}) {
    CAPTURE(text);
    CHECK(parallelism_refusal(text).find("is not simulated; accepted: rows ") != std::string::npos);
  }
  CHECK(parallelism_refusal("FSDP without offload") == "accepted");
  for (const char* text :
       {"FSDP, shard 4, replicate 2", "FSDP (4)", "HSDP 4", "FSDP shard=4", "FSDP, replicate 2"}) {
    CAPTURE(text);
    CHECK(parallelism_refusal(text).find(
              "names groups of 4, and column zero_group is empty; accepted: column zero_group") !=
          std::string::npos);
    CHECK(parallelism_refusal(text, "micro_batch,zero_group", "2,4") == "accepted");
  }
  CHECK(parallelism_refusal("FSDP (8)") == "accepted");
}

TEST_CASE("parallelism: FSDP2 and FSDP1 are PyTorch's versions, and nodes are no groups") {
  for (const char* text :
       {"FSDP2", "FSDP 2", "FSDP-2", "PyTorch FSDP2", "FSDP1", "FSDPv2", "FSDP v2", "FSDP (8 GPUs)",
        "FSDP 1 node", "FSDP (1 node)", "FULL_SHARD (1 node)", "HSDP (1x8)", "DDP 1x8",
        "FSDP (2x4)", "HSDP, shard 8", "FSDP (no CPU offloading)", "fsdp + ddp"}) {
    CAPTURE(text);
    CHECK(parallelism_refusal(text) == "accepted");
  }
  CHECK(stage("FSDP2") == 3);
  CHECK(stage("FSDPv1") == 3);
  CHECK(parallelism_refusal("FSDP (2 nodes)") ==
        "f:2:parallelism: 'FSDP (2 nodes)' names 2 machines, and the row has 1; accepted: the same "
        "number in both");
  CHECK(parallelism_refusal("FSDP2 (reshard_after_forward=False)") ==
        "f:2:parallelism: 'FSDP2 (reshard_after_forward=False)' keeps gathered weights; accepted: "
        "SHARD_GRAD_OP, or ZeRO-2");
  for (const char* text : {"FSDP, no reshard", "FSDP without resharding after forward"}) {
    CAPTURE(text);
    CHECK(parallelism_refusal(text).find("keeps gathered weights") != std::string::npos);
  }
  for (const char* text : {"FSDP, shard size 4", "FSDP shard_size=4", "FSDP, sharding factor 4",
                           "HSDP, shard 4", "HSDP (2x4)", "HSDP, replicate 2"}) {
    CAPTURE(text);
    CHECK(parallelism_refusal(text).find("names groups of 4") != std::string::npos);
  }
}

TEST_CASE("parallelism: unknown words, and sharding of no kind, are refused") {
  const std::string accepted =
      "; accepted: DDP, FSDP, FULL_SHARD, SHARD_GRAD_OP, HSDP, ZeRO-1 to 3, TP, PP, CP, EP, with "
      "degrees";
  for (const auto& [text, word] : {std::pair<std::string, std::string>{"SimpleFSDP", "simplefsdp"},
                                   {"MiCS", "mics"},
                                   {"--use-distributed-optimizer", "optimizer"},
                                   {"Distributed optimizer", "optimizer"},
                                   {"optim_grads_params", "optim"},
                                   {"Local SGD", "local"},
                                   {"DiLoCo", "diloco"},
                                   {"PEFT", "peft"},
                                   {"FSDP in groups", "groups"}}) {
    CAPTURE(text);
    CHECK(parallelism_refusal(text) ==
          "f:2:parallelism: '" + text + "', whose word '" + word + "' is not known" + accepted);
  }
  CHECK(parallelism_refusal("DoRA").find("whose word 'dora' is not known") != std::string::npos);
  CHECK(parallelism_refusal("FSPD").ends_with("; did you mean 'fsdp'?"));
  for (const char* text : {"stage 3", "sharded", "dp_shard=8", "data_parallel_shard_degree=8"}) {
    CAPTURE(text);
    CHECK(parallelism_refusal(text).find("names sharding without its kind; accepted: FSDP") !=
          std::string::npos);
  }
  for (const char* text : {"ZeRO-3 NVMe", "ZeRO-3 Infinity", "FSDP, cpuoffload"}) {
    CAPTURE(text);
    CHECK(parallelism_refusal(text).find("is not simulated") != std::string::npos);
  }
  CHECK(parallelism_refusal("ZeRO-3", "micro_batch,optimizer", "2,Adam (CPU offload)") ==
        "f:2:optimizer: 'Adam (CPU offload)' is not simulated; accepted: rows whose weights and "
        "states are on the GPUs");
}

TEST_CASE("parallelism: kinds that are named have their degree in a column") {
  const std::string accepted =
      "; accepted: columns tp, pp, cp and ep with micro_batch, the samples of a replica at once, "
      "or layout_file";
  CHECK(parallelism_refusal("tensor parallel 8") ==
        "f:2:parallelism: 'tensor parallel 8' names tensor parallelism, and column tp is empty" +
            accepted);
  for (const std::string text : {"MP8", "mp = 8"}) {
    CHECK(parallelism_refusal(text) == "f:2:parallelism: '" + text +
                                           "' names tensor parallelism, and column tp is empty" +
                                           accepted);
  }
  for (const std::string text : {"GPipe", "1F1B"}) {
    CHECK(parallelism_refusal(text) == "f:2:parallelism: '" + text +
                                           "' names pipeline parallelism, and column pp is empty" +
                                           accepted);
  }
  CHECK(parallelism_refusal("Ulysses") ==
        "f:2:parallelism: 'Ulysses' names context parallelism, and column cp is empty" + accepted);
  CHECK(parallelism_refusal("DP=4") ==
        "f:2:parallelism: 'DP=4' names 4 replicas of 8 GPUs, and columns tp, pp and cp are empty" +
            accepted);
  CHECK(parallelism_refusal("PP4") ==
        "f:2:parallelism: 'PP4' names pipeline parallelism, and column pp is empty" + accepted);
  CHECK(parallelism_refusal("3D") ==
        "f:2:parallelism: '3D' names several kinds of parallelism, and columns tp, pp, cp and ep "
        "are empty" +
            accepted);
  CHECK(parallelism_refusal("TP8", "micro_batch,tp", "2,4") ==
        "f:2:parallelism: 'TP8' names tp 8, and column tp is 4; accepted: the same degree in both");
  for (const char* text :
       {"tensor", "TP8", "tp=8", "8-way TP", "TP + DP", "TP DP", "DP2xTP4", "DP2TP4",
        "tensor_model_parallel_size=8", "TensorParallel", "pipeline", "CP2", "context parallel",
        "EP8", "expert parallelism", "hybrid", "model parallel", "4D"}) {
    CAPTURE(text);
    CHECK(parallelism_refusal(text).ends_with(accepted));
    CHECK(parallelism_refusal(text, "batch_per_gpu", "2").ends_with(accepted));
  }
  CHECK(parallelism_refusal("tensor", "micro_batch,tp", "2,8") == "accepted");
  CHECK(parallelism_refusal("FSDP8 TP1 PP1 CP1") == "accepted");
  CHECK(parallelism_refusal("TP2 PP2 DP2", "micro_batch,tp,pp", "2,2,2") == "accepted");
  CHECK(parallelism_refusal("3D", "micro_batch,tp,pp", "2,2,2") == "accepted");
  CHECK(parallelism_refusal("DP, TensorFlow with tensor cores") == "accepted");
}

TEST_CASE("parallelism: a framework that shards needs the stage, and agrees with it") {
  const auto refused = [](const std::string& framework, const std::string& parallelism,
                          const std::string& zero_stage = "") {
    return parallelism_refusal(parallelism, "micro_batch,framework,zero_stage",
                               "2,\"" + framework + "\"," + zero_stage);
  };
  const std::string silent =
                        " shards states, and columns parallelism and zero_stage do not say how; ",
                    accepted =
                        "accepted: parallelism FSDP, FULL_SHARD, SHARD_GRAD_OP, HSDP or "
                        "ZeRO-1 to 3, or zero_stage";
  // Before, these were whole replicas without a word.
  for (const std::string framework :
       {"PyTorch FSDP", "PyTorch FSDP2", "DeepSpeed ZeRO-3", "DeepSpeed ZeRO stage 2", "torchtitan",
        "torchtitan 0.2, torch.compile", "fully_shard of PyTorch 2.6"}) {
    CAPTURE(framework);
    CHECK(refused(framework, "") == "f:2:framework: '" + framework + "'" + silent + accepted);
    CHECK(refused(framework, "", "0").ends_with(accepted) ==
          (framework.find("ZeRO") != std::string::npos));
  }
  for (const std::string framework : {"DeepSpeed", "PyTorch", "Megatron-LM", "PyTorch without FSDP",
                                      "zero-bubble pipelines of Megatron-LM"}) {
    CAPTURE(framework);
    CHECK(refused(framework, "") == "accepted");
  }
  CHECK(refused("PyTorch FSDP", "FSDP") == "accepted");
  CHECK(refused("PyTorch FSDP", "SHARD_GRAD_OP") == "accepted");
  CHECK(refused("PyTorch FSDP", "", "2") == "accepted");
  CHECK(refused("torchtitan", "DDP") == "accepted");
  CHECK(refused("DeepSpeed ZeRO-3", "ZeRO-3") == "accepted");
  CHECK(refused("DeepSpeed ZeRO-3", "", "3") == "accepted");
  CHECK(refused("DeepSpeed ZeRO-3", "ZeRO-2") ==
        "f:2:framework: 'DeepSpeed ZeRO-3' shards states, and other columns say ZeRO stage 2; " +
            accepted);
  CHECK(refused("PyTorch FSDP", "DDP") ==
        "f:2:framework: 'PyTorch FSDP' shards states, and column parallelism says DDP; " +
            accepted);
  CHECK(refused("PyTorch", "FSDP", "1")
            .ends_with("PyTorch's FSDP has none such; accepted: zero_stage "
                       "3 (FULL_SHARD), 2 (SHARD_GRAD_OP) or 0 (NO_SHARD)"));
  CHECK(refused("PyTorch", "DDP", "3").ends_with("accepted: FSDP or ZeRO-3"));
  CHECK(refused("Megatron-LM", "DDP", "1") == "accepted");
}

}  // namespace parsim::validation
