// Words of free text that hold, and those that it denies.
#include "validation/affirmed_words.hpp"

#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "sim/sim.hpp"
#include "tests/support/refusal.hpp"
#include "topologies/topologies.hpp"
#include "validation/interconnect_column.hpp"
#include "validation/measurements.hpp"
#include "validation/parallelism_column.hpp"
#include "validation/predict_published.hpp"
#include "validation/published_machines.hpp"
#include "validation/published_plan.hpp"
#include "validation/published_training.hpp"

namespace parsim::validation {
namespace {

Claim with_column(const std::string& name, const std::string& text) {
  Claim claim = read_measurements(
                    "network,gpu,n_gpus,micro_batch,value,unit\n"
                    "\"gpt:layers=2,hidden=64,heads=4,seq_length=32,vocab_size=128\","
                    "a100-sxm4-80,2,1,16,ms\n",
                    "f.csv", "f")
                    .at(0);
  claim.what[name] = text;
  return claim;
}

std::string precision_in(const std::string& text) {
  std::string precision;
  const std::string refused = testing::refusal_of(
      [&] { return precision = to_text(precision_of(with_column("precision", text))); });
  return refused == "accepted" ? precision : refused;
}

}  // namespace

TEST_CASE("affirmed words: what a text denies is no word of it") {
  for (const auto& [text, expected] :
       {std::pair{"FP32 (TF32 off)", "fp32 (~ off)"},
        {"TF32 is disabled, FP32", "~ is disabled, fp32"},
        {"FP32 no TF32", "fp32 no ~"},
        {"no FP8 or TF32; BF16", "no ~ or ~; bf16"},
        {"w/o FP8/TF32", "w/o ~/~"},
        {"neither FSDP nor DDP", "neither ~ nor ~"},
        {"compile=False", "~=false"},
        {"torch.compile: no, DDP", "~: no, ddp"},
        {"PyTorch: no torch.compile", "pytorch: no ~"},
        {"PyTorch (not compiled)", "pytorch (not ~)"},
        {"non-compiled --no-compile TF32-off", "~ ~ ~"},
        {"DDP, not using FSDP", "ddp, not using ~"},
        {"FSDP not used", "~ not used"},
        {"SGD momentum=0.0", "sgd ~=0.0"},
        {"SGD momentum=0.9", "sgd momentum=0.9"},
        {"ZeRO=0", "zero=0"},
        {"FSDP no shard, NO_SHARD", "fsdp no shard, no_shard"},
        {"fused attention off, LDDL", "fused ~ off, lddl"},
        {"FP16 mixed (not stated: from memory)", "fp16 mixed (not ~: from memory)"},
        {"off", "off"},
        {"no", "no"},
        {"", ""}}) {
    CAPTURE(text);
    CHECK(affirmed(text) == expected);
  }
}

TEST_CASE("affirmed words: a precision is the one that kernels have, and one") {
  // "FP32 (TF32 off)" was TF32: 132 instead of 430 ms of four blocks of Llama 3 8B on 8 H100.
  for (const char* text :
       {"FP32 (TF32 off)", "FP32, TF32 disabled", "fp32 no tf32", "FP32 without TF32",
        "FP32 (validate.py passes fp16=False)", "FP32, AMP off"}) {
    CAPTURE(text);
    CHECK(precision_in(text) == "fp32");
  }
  for (const char* text : {"bf16 (fp8 off)", "bf16, no fp8", "BF16 (not FP16)",
                           "bf16, FP32 master weights", "bf16 mixed", "FP32/BF16 mixed"}) {
    CAPTURE(text);
    CHECK(precision_in(text) == "bf16");
  }
  CHECK(precision_in("bf16_with_fp8_mixed") == "fp8");
  CHECK(precision_in("FP16/FP32 mixed") == "fp16");
  for (const std::string text :
       {"fp32/tf32", "BF16 or FP16", "FP8, BF16", "FP32 (TF32)", "bf16 mixed, TF32 elsewhere"}) {
    CHECK(precision_in(text) ==
          "f:2:precision: '" + text +
              "' names several precisions; accepted: that of kernels alone: FP32, TF32, FP16, "
              "BF16, FP8 or AMP (column reduce_precision has that of gradients)");
  }
  CHECK(precision_in("TF32 off").find("unknown precision 'TF32 off'") != std::string::npos);
}

TEST_CASE("affirmed words: frameworks in any capitals, and not those that are denied") {
  const auto fusion = [](const char* text) { return fusion_of(with_column("framework", text)); };
  for (const char* text : {"Megatron-LM", "megatron-lm", "MEGATRON-LM"}) {
    CAPTURE(text);
    CHECK(fusion(text) == sim::Fusion::megatron);
  }
  for (const char* text : {"PyTorch, torch.compile", "PyTorch, Torch.Compile", "MXNet, Fused"}) {
    CAPTURE(text);
    CHECK(fusion(text) == sim::Fusion::compiled);
  }
  for (const char* text : {"PyTorch, no torch.compile", "PyTorch (not compiled)", "compile=False",
                           "PyTorch, fused attention off"}) {
    CAPTURE(text);
    CHECK(fusion(text) == sim::Fusion::none);
  }
  const auto all = [](const char* text) {
    return bucket_of(with_column("framework", text), Precision::fp32) >
           strategies::StrategyOptions{}.bucket;
  };
  for (const char* text : {"PyTorch ddp", "fsdp", "TORCHTITAN", "hf trainer", "HuggingFace"}) {
    CAPTURE(text);
    CHECK_FALSE(all(text));
  }
  CHECK(all("PyTorch, without DDP"));
  CHECK(zero_stage_of(with_column("parallelism", "no FSDP")).value_or(0) == 0);
  CHECK(zero_stage_of(with_column("parallelism", "DDP, not FSDP")).value_or(0) == 0);
  CHECK(zero_stage_of(with_column("parallelism", "DDP instead of FSDP")).value_or(0) == 0);
  CHECK(zero_stage_of(with_column("parallelism", "DDP rather than FSDP")).value_or(0) == 0);
  CHECK(zero_stage_of(with_column("parallelism", "FSDP no shard")) == 0);
}

TEST_CASE("affirmed words: momentum that an optimizer lacks, and states of fewer bits") {
  const auto optimizer = [](const std::string& text) {
    return Training(with_column("optimizer", text)).dag().optimizer;
  };
  for (const char* text :
       {"SGD without momentum", "SGD (no momentum)", "SGD, momentum=0", "SGD momentum 0",
        "SGD (momentum = 0.0)", "SGD, momentum: 0, weight decay 1e-4", "momentum 0"}) {
    CAPTURE(text);
    CHECK(optimizer(text) == Optimizer::sgd);
  }
  for (const char* text : {"SGD momentum 0.9", "SGD (momentum=0.9)", "momentum 0.99"}) {
    CAPTURE(text);
    CHECK(optimizer(text) == Optimizer::momentum);
  }
  CHECK(optimizer("SGD, Nesterov") == Optimizer::momentum);
  CHECK(optimizer("AdamW (not 8bit)") == Optimizer::adam);
  for (const std::string text : {"AdamW 8bit", "Adam, 8-bit", "not Adam"}) {
    CHECK(testing::refusal_of([&] { static_cast<void>(optimizer(text)); }) ==
          "f:2:optimizer: '" + text +
              "'; accepted: Adam, AdamW, LAMB, LARS, SGD momentum, or SGD (without momentum)");
  }
}

TEST_CASE("affirmed words: links that a machine lacks, or only some GPUs have") {
  // Before, NVLink of all: 192 instead of 772 ms of four blocks of Llama 3 8B on 8 A100.
  const auto rate = [](const std::string& text, const std::string& gpu = "a100-sxm4-80") {
    const Claim claim = with_column("gpu", gpu);
    return inside_links(claim, text, topologies::device_model(gpu, "gpu"), 8).rate;
  };
  for (const char* text : {"PCIe gen4 (no NVLink)", "no NVLink", "NVLink off, PCIe gen4",
                           "PCIe without NVLink", "PCIe gen4 x16"}) {
    CAPTURE(text);
    CHECK(rate(text) == rate("PCIe gen4"));
    CHECK(rate("PCIe gen4 instead of NVLink") == rate("PCIe gen4"));
  }
  CHECK(rate("PCIe gen4 x8") == rate("PCIe gen4") / 2);
  CHECK(rate("PCIe gen4x8 + 2x200 Gb/s") == rate("PCIe gen4") / 2);
  CHECK(rate("NVLink4 + 8x400 Gb/s") == rate("NVSwitch, PCIe gen4"));
  CHECK(rate("NVLink3, PCIe gen4") == rate("NVSwitch"));  // of modules
  CHECK(rate("NVLink3 all-to-all (NV4 per pair)") == rate("NVSwitch"));
  for (const std::string text :
       {"NVLink bridge (2 GPUs), PCIe gen4", "PCIe gen4, NVLink bridges", "NVLink between pairs"}) {
    CHECK(testing::refusal_of([&] { return rate(text); }) ==
          "f:2:interconnect: '" + text +
              "' has NVLink between some of 8 GPUs; accepted: the links of most pairs alone, as in "
              "'PCIe gen4', or column cluster with a file of all links");
  }
  CHECK(testing::refusal_of([&] { return rate("NVLink, PCIe gen4", "a100-pcie"); }) != "accepted");
}

}  // namespace parsim::validation
