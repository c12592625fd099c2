#include "validation/measurements.hpp"

#include <doctest/doctest.h>

#include <set>

#include "core/errors.hpp"
#include "tests/support/refusal.hpp"
#include "validation/predict_published.hpp"
#include "validation/published_collective.hpp"

namespace parsim::validation {
namespace {

std::string csv_refusal(std::string_view csv) {
  return testing::refusal_of([&] { return read_measurements(csv, "f.csv", "f"); });
}

}  // namespace

TEST_CASE("measurements: large collectives to be predicted are also a set without calibration") {
  const std::vector<Claim> rows = uncalibrated_collectives(
      read_measurements("collective,size_bytes,time_us_outofplace,split\n"
                        "all_reduce,67108863,10,\nall_reduce,67108864,11,\n"
                        "all_reduce,67108864,12,calibrate\nbroadcast,1000000000,13,unscored\n"
                        "broadcast,1000000000,14,validate\n",
                        "f.csv", "set"));
  REQUIRE(rows.size() == 2);
  CHECK(rows[0].expected == 11);
  CHECK(rows[1].expected == 14);
  for (const Claim& row : rows) {
    CHECK(row.set == "set_uncalibrated");
    CHECK(row.at(uncalibrated) == "yes");
  }
}

TEST_CASE("measurements: columns decide the quantity, and every column is kept") {
  const auto claims = [](std::string_view csv) { return read_measurements(csv, "f.csv", "set"); };
  const Claim rate = claims("model,n_gpus,value,unit,odd\nVGG16,4,584,images/s,kept\n").at(0);
  CHECK(rate.set == "set");
  CHECK(rate.quantity == "throughput");
  CHECK(rate.expected == 584);
  CHECK(rate.unit == "images/s");
  CHECK(rate.name == "VGG16, 4 n_gpus (line 2)");
  CHECK(rate.at("odd") == "kept");
  CHECK(split_of(rate) == Split::validate);

  const Claim step = claims("model,fwd_ms,bwd_ms,split\nx,10,21.5,calibrate\n").at(0);
  CHECK(step.quantity == "step-time");
  CHECK(step.expected == 31.5);
  CHECK(step.unit == "ms");
  CHECK(split_of(step) == Split::calibrate);
  CHECK(claims("model,fwd_ms,bwd_ms,total_ms\nx,,,30\n").at(0).expected == 30);

  const auto both = claims(
      "collective,size_bytes,time_us_outofplace,time_us_inplace,split\n"
      "all_reduce,8,12.5,13,\nall_reduce,16,,14,unscored\n");
  CHECK(both.at(0).quantity == "collective-time");
  CHECK(both.at(0).expected == 12.5);
  CHECK(both.at(1).expected == 14);
  CHECK(split_of(both.at(0)) == Split::validate);
  CHECK(split_of(both.at(1)) == Split::unscored);
}

TEST_CASE("measurements: earlier spellings of a network's options are read") {
  const auto network = [](const std::string& call) {
    return read_measurements("network,value,unit\n\"" + call + "\",3,ms\n", "f.csv", "f")
        .at(0)
        .at("network");
  };
  CHECK(network("gpt:layers=2,width=64,heads=4,tokens=32,words=100,inner=128,key_heads=2,"
                "attention=maps") ==
        "gpt:layers=2,hidden=64,heads=4,seq_length=32,vocab_size=100,ffn_hidden=128,kv_heads=2,"
        "attention=eager");
  CHECK(network("gpt:words=100") == "gpt:vocab_size=100");
  CHECK(network("gpt:hidden=64,positions=none") == "gpt:hidden=64,positions=none");
  CHECK(network("configs/words=1.json") == "configs/words=1.json");
}

TEST_CASE("measurements: a run that failed for lack of memory has no value, others need one") {
  const auto claim = [](const std::string& status) {
    return read_measurements("model,value,unit,status\nx,," + std::string("ms,") + status + "\n",
                             "f.csv", "f")
        .at(0);
  };
  CHECK_FALSE(claim("OOM").ran);
  CHECK_FALSE(claim("CUDA out of memory").ran);
  CHECK_FALSE(claim("did not run (inf)").ran);
  CHECK(claim("failed").quantity == "throughput");
  CHECK(csv_refusal("model,value,unit,status\nx,,ms,measured\n") ==
        "f.csv:2:value: ''; accepted: a number");
  CHECK(
      read_measurements("model,value,unit,status\nx,3,ms,failed later\n", "f.csv", "f").at(0).ran);
}

TEST_CASE("measurements: a row waits for what it needs, and no longer") {
  const auto claim = [](const std::string& needs, const std::string& ready) {
    return read_measurements("model,value,unit,split,needs,split_when_ready\nx,3,ms,unscored,\"" +
                                 needs + "\"," + ready + "\n",
                             "f.csv", "f")
        .at(0);
  };
  CHECK(split_of(claim("scale", "validate")) == Split::validate);
  CHECK(split_of(claim("scale", "")) == Split::unscored);
  CHECK(split_of(claim("", "validate")) == Split::unscored);
  CHECK(split_of(claim("nonesuch,scale", "validate")) == Split::unscored);
  CHECK(missing_needs(claim("nonesuch,scale,another", "validate")) == "nonesuch, another");
  CHECK(missing_needs(claim("scale,vp", "validate")).empty());
  CHECK(split_of(claim("vp", "validate")) == Split::validate);
  // What is recomputed has to be said.
  Claim selective = claim("selective-recompute", "validate");
  CHECK(missing_needs(selective) == "selective-recompute");
  selective.what["recompute"] = "op";
  CHECK(split_of(selective) == Split::validate);
  selective.what["recompute"] = "";
  selective.what["notes"] = "activation checkpointing: selective (per operation)";
  CHECK(recompute_text(selective) == "op");
  CHECK(missing_needs(selective).empty());
  selective.what["recompute"] = "full";
  CHECK(recompute_text(selective) == "full");
}

TEST_CASE("measurements: errors name the line") {
  CHECK(
      csv_refusal("model,speed\nx,1\n") ==
      "f.csv: no column with a measurement; accepted: size_bytes (or data_MiB) with time_us or "
      "time_us_outofplace, "
      "total_ms (or fwd_ms and bwd_ms), value with unit, or time_us (median_us, sustained_us) of a "
      "kernel with op_class, m, n and k, or head_dim");
  CHECK(csv_refusal("model,value,unit\nx,fast,images/s\n") ==
        "f.csv:2:value: 'fast'; accepted: a number");
  CHECK(csv_refusal("model,value,unit\nx,0,images/s\n") ==
        "f.csv:2: a measurement of 0; accepted: a positive number");
  CHECK(csv_refusal("model,value,unit,split\nx,1,images/s,test\n") ==
        "f:2:split: 'test'; accepted: calibrate, validate, unscored, or nothing for validate");
}

TEST_CASE("measurements: the published tables are whole") {
  std::map<std::string, std::map<Split, int>> counts;
  std::set<std::string> names;
  for (const Claim& claim : published_measurements()) {
    ++counts[claim.set][split_of(claim)];
    CHECK(names.insert(claim.set + claim.name).second);
    CHECK(claim.source.size() > 20);
  }
  using Counts = std::map<Split, int>;
  CHECK(counts.size() == 11);
  CHECK(counts["bert_large_pytorch"] ==
        Counts{{Split::calibrate, 4}, {Split::validate, 16}, {Split::unscored, 20}});
  CHECK(counts["mlperf_resnet50_v4_0"] ==
        Counts{{Split::calibrate, 5}, {Split::validate, 24}, {Split::unscored, 1}});
  CHECK(counts["neusight_single_gpu"] == Counts{{Split::validate, 20}, {Split::unscored, 2}});
  CHECK(counts["collectives_modern"] == Counts{{Split::calibrate, 305}, {Split::validate, 305}});
  CHECK(counts["tensorflow_cnn_2017"] == Counts{{Split::calibrate, 28}, {Split::validate, 70}});
  CHECK(counts["dlperf_resnet50_v100"] == Counts{{Split::calibrate, 33}, {Split::validate, 97}});
  CHECK(counts["single_gpu_cnn"] ==
        Counts{{Split::calibrate, 8}, {Split::validate, 91}, {Split::unscored, 58}});
  CHECK(counts["collectives"] == Counts{{Split::calibrate, 409}, {Split::validate, 237}});
  CHECK(counts["llm_foundry_mpt"] == Counts{{Split::calibrate, 3}, {Split::validate, 213}});
  CHECK(counts["vtrain_a100_multi_node"] == Counts{{Split::calibrate, 1}, {Split::validate, 108}});
  CHECK(counts["vtrain_a100_single_node"] == Counts{{Split::unscored, 480}});
}

TEST_CASE("measurements: the longest alias wins, and a hint is asked for where one is needed") {
  const auto network = [](std::string_view text, std::string_view hint = {}) {
    return resolve_alias(AliasKind::network, text, hint);
  };
  CHECK(network("ResNet-50") == "resnet50");
  CHECK(network("resnet 50 V1.5, ImageNet") == "resnet50");
  CHECK(network("ResNet-50 v1") == "resnet50_v1");
  CHECK(network("ResNet-50", "TensorFlow 1.1+ tf_cnn_benchmarks") == "resnet50_v1");
  CHECK(network("VGG-A (11 layers)") == "vgg11");
  CHECK(network("Nonesuch") == std::nullopt);
  CHECK(resolve_alias(AliasKind::device, "V100-PCIe-32GB") == "v100-pcie");
  CHECK(resolve_alias(AliasKind::device, "A100-80GB") == "a100-sxm4-80");
  CHECK(resolve_alias(AliasKind::device, "H100 80GB HBM3") == "h100-sxm5");
  CHECK(resolve_alias(AliasKind::device, "A1000") == std::nullopt);
  CHECK(resolve_alias(AliasKind::cluster, "AWS EC2 p2.8xlarge (8x K80)") == "k80-cloud-x2");
  CHECK(resolve_alias(AliasKind::cluster, "AWS EC2 p3.16xlarge") == std::nullopt);
}

TEST_CASE("measurements: a name does not begin with another that goes on in the same word") {
  const auto begins = [](std::string_view text, std::string_view name) {
    return begins_with_name(AliasKind::device, text, name);
  };
  CHECK(begins("L4", "l4"));
  CHECK_FALSE(begins("L40", "l4"));
  CHECK_FALSE(begins("L40S", "l40"));
  CHECK(begins("L40-48GB", "l40"));
  CHECK_FALSE(begins("A10G", "a10"));
  CHECK_FALSE(begins("A100", "a10"));
  CHECK(begins("A100-SXM4-80GB", "a100-sxm4-80"));
  CHECK(begins("V100 SXM2 (16 GB)", "v100-sxm2"));
  CHECK(begins("RTX 2080Ti", "rtx-2080ti"));
  CHECK_FALSE(begins("RTX 2080 Ti", "rtx-2080"));
  CHECK_FALSE(begins("RTX 2080 Super", "rtx-2080"));
  CHECK(begins_with_name(AliasKind::network, "resnet 50 V1.5", "ResNet-50"));
  CHECK_FALSE(begins_with_name(AliasKind::network, "ResNet-501", "ResNet-50"));
}

TEST_CASE("measurements: collectives with a column time_us, and rows that are not usable") {
  const std::vector<Claim> claims = read_measurements(
      "gpu,machine,n_gpus,collective,size_bytes,time_us,nccl_version,usable,source\n"
      "l40s,\"8 x L40S, PCIe\",2,alltoall,65536,12,2.27.3,yes,s\n"
      "l40s,\"8 x L40S, PCIe\",8,alltoall,65536,400,2.27.3,no,s\n",
      "c.csv", "c");
  CHECK(claims.at(0).expected == 12);
  CHECK(split_of(claims[0]) == Split::validate);
  CHECK(PublishedPredictor::not_expressible(claims[0]).empty());
  CHECK(split_of(claims[1]) == Split::unscored);
  CHECK(PublishedPredictor(claims)(claims[1]).reason == "not usable, according to its source");
}

TEST_CASE("measurements: a unit that contradicts the metric is refused") {
  const auto refused = [](const std::string& metric, const std::string& unit) {
    return testing::refusal_of([&] {
      (void)read_measurements(
          "model,batch,metric,value,unit\nresnet50,32," + metric + ",95," + unit + "\n", "t.csv",
          "t");
    });
  };
  CHECK(refused("step time (ms)", "") == "t.csv:2:unit: '' for 'step time (ms)'; accepted: ms");
  CHECK(refused("Iteration time", "images/s") ==
        "t.csv:2:unit: 'images/s' for 'Iteration time'; accepted: ms");
  CHECK(refused("training throughput", "ms") ==
        "t.csv:2:unit: 'ms' for 'training throughput'; accepted: images/s, samples/s or tokens/s");
  for (const auto& [metric, unit] : {std::pair{"step time", "ms"},
                                     {"training throughput", ""},
                                     {"throughput", "samples/s"},
                                     {"", ""},
                                     {"throughput (source: tokens per GPU)", "samples/s"},
                                     {"median of runs", "ms"}}) {
    CAPTURE(metric);
    CHECK(refused(metric, unit) == "accepted");
  }
  const std::string whole =
      "; accepted: the time of a step, or samples a second of all GPUs together; of one GPU with a "
      "unit such as tokens/s/GPU";
  CHECK(refused("training throughput per GPU", "samples/s") ==
        "t.csv:2:metric: 'training throughput per GPU'" + whole);
  CHECK(refused("Epoch time", "ms") == "t.csv:2:metric: 'Epoch time'" + whole);
}

}  // namespace parsim::validation
