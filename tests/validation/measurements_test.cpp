#include "validation/measurements.hpp"

#include <doctest/doctest.h>

#include <set>

#include "core/errors.hpp"
#include "tests/support/refusal.hpp"

namespace parsim {
namespace {

std::string csv_refusal(std::string_view csv) {
  return testing::refusal_of([&] { return read_measurements(csv, "f.csv", "f"); });
}

}  // namespace

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

TEST_CASE("measurements: a run that did not come to an end needs no value") {
  const auto claims = read_measurements(
      "model,value,unit,status\nx,,ms,did not run (inf)\nx,,ms,OOM\nx,3,ms,measured\n", "f.csv",
      "f");
  CHECK_FALSE(ran(claims.at(0)));
  CHECK_FALSE(ran(claims.at(1)));
  CHECK(claims.at(0).expected == 0);
  CHECK(ran(claims.at(2)));
  CHECK(csv_refusal("model,value,unit,status\nx,,ms,measured\n") ==
        "f.csv:2:value: ''; accepted: a number");
}

TEST_CASE("measurements: what is wrong is said with its line") {
  CHECK(csv_refusal("model,speed\nx,1\n") ==
        "f.csv: no column with a measurement; accepted: size_bytes with time_us_outofplace, "
        "total_ms (or fwd_ms and bwd_ms), or value with unit");
  CHECK(csv_refusal("model,value,unit\nx,fast,images/s\n") ==
        "f.csv:2:value: 'fast'; accepted: a number");
  CHECK(csv_refusal("model,value,unit\nx,0,images/s\n") ==
        "f.csv:2: a measurement of 0; accepted: more than nothing");
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
  CHECK(counts.size() == 7);
  CHECK(counts["tensorflow_cnn_2017"] == Counts{{Split::calibrate, 28}, {Split::validate, 70}});
  CHECK(counts["dlperf_resnet50_v100"] == Counts{{Split::calibrate, 33}, {Split::validate, 97}});
  CHECK(counts["single_gpu_cnn"] ==
        Counts{{Split::calibrate, 8}, {Split::validate, 91}, {Split::unscored, 58}});
  CHECK(counts["collectives"] == Counts{{Split::calibrate, 409}, {Split::validate, 237}});
  CHECK(counts["llm_foundry_mpt"] ==
        Counts{{Split::calibrate, 3}, {Split::validate, 180}, {Split::unscored, 33}});
  CHECK(counts["vtrain_a100_multi_node"] ==
        Counts{{Split::calibrate, 1}, {Split::validate, 17}, {Split::unscored, 91}});
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
  CHECK(resolve_alias(AliasKind::cluster, "AWS EC2 p2.8xlarge (8x K80)", "nodes=2") ==
        "k80-cloud-x2");
  CHECK(resolve_alias(AliasKind::cluster, "AWS EC2 p2.8xlarge (8x K80)", "nodes=4") ==
        std::nullopt);
}

}  // namespace parsim
