// How rows of transformers become plans, on small networks.
#include "app/published_plan.hpp"

#include <doctest/doctest.h>

#include <algorithm>

#include "app/predict_published.hpp"
#include "app/published_machines.hpp"
#include "app/published_training.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "tests/support/refusal.hpp"
#include "validation/measurements.hpp"

namespace parsim {
namespace {

constexpr const char* columns =
    "model,gpu,machine,nodes,gpus_per_node,n_gpus,interconnect,precision,parallelism,tp,dp,pp,"
    "micro_batch,grad_accum,global_batch,zero_stage,recompute,network,value,unit\n";

/// Eight A100 in one machine; `run` are the columns from parallelism to recompute.
Claim row(const std::string& run, const std::string& unit = "ms") {
  const std::string machine = "GPT,A100-SXM4-80GB,box,1,8,8,NVSwitch,BF16,";
  const std::string network = ",\"gpt:layers=4,width=64,heads=4,tokens=32,words=128,dropout=0\"";
  return read_measurements(columns + machine + run + network + ",1," + unit + "\n", "f.csv", "f")
      .at(0);
}

struct Planned {
  Network network;
  Plan plan;
};

Planned planned(const Claim& claim) {
  Planned both{load_network(network_of(claim), {}, "test"), {}};
  const Cluster cluster = cluster_of(claim);
  const auto cost = make_tile_costs(cluster);
  StrategyInput input{both.network, cluster, *cost};
  both.plan = published_plan(claim, input);
  return both;
}

std::string refusal(const std::string& run) {
  return testing::refusal_of([&] { static_cast<void>(layout_of(row(run))); });
}

}  // namespace

TEST_CASE("published plan: columns say how a run is spread, and have to agree") {
  const RunLayout run = layout_of(row("3D,2,2,2,4,3,24,,"));
  CHECK(run.tensor == 2);
  CHECK(run.pipeline == 2);
  CHECK(run.data == 2);
  CHECK(run.batch() == 24);
  CHECK(layout_of(row("FSDP,,,,4,3,96,3,")).batch() == 96);
  CHECK(refusal("3D,3,,1,4,1,,,").starts_with("f:2:n_gpus: 8 in groups of 3; accepted"));
  CHECK(refusal("3D,2,4,2,4,3,,,").starts_with("f:2:dp: 4, but 2 by the others; accepted"));
  CHECK(refusal("3D,2,2,2,4,3,25,,").starts_with("f:2:global_batch: 25, but 24 by the others"));
  CHECK(refusal("3D,2,2,2,none,3,,,").starts_with("f:2:micro_batch: 'none'"));
}

TEST_CASE("published plan: stages of whole blocks, all gradients after the last kernel") {
  const auto [network, plan] = planned(row("3D,2,2,2,4,3,24,,"));
  CHECK(plan.schedule.micro_batches == 3);
  CHECK(plan.buckets.size() == 1);
  CHECK(plan.optimizer == Optimizer::momentum);  // the input's
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const std::string& name = network.layers[l].name;
    const bool late = name.starts_with("block2") || name.starts_with("block3") || name == "ln_f" ||
                      name == "lm_head" || name == "loss";
    CAPTURE(name);
    CHECK(plan.schedule.stage_of_layer[l] == (late ? 1 : 0));
    CHECK_FALSE(plan.layers[l].recompute);
  }
}

TEST_CASE("published plan: FSDP's units are blocks, which keep their input only") {
  const auto [network, plan] = planned(row("DP sync: FSDP FULL_SHARD,,,,4,3,96,3,yes"));
  REQUIRE(plan.buckets.size() == 5);
  for (std::size_t b = 0; b < 4; ++b) {
    for (const ParameterId id : plan.buckets[b]) {
      CHECK(network[id].name.starts_with("block" + std::to_string(3 - b)));
    }
  }
  CHECK(network[plan.buckets[4][0]].name.starts_with("wte"));
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    const std::string& name = network.layers[l].name;
    CAPTURE(name);
    CHECK(plan.layers[l].recompute == (name.starts_with("block") && !name.ends_with(".mlp.sum")));
    CHECK(zero_stage(plan.layers[l]) == 3);
  }
}

TEST_CASE("published plan: a time is compared with a time, a rate with a rate") {
  const Claim time = row("DP sync: FSDP FULL_SHARD,,,,4,3,96,3,yes");
  const Claim rate = row("DP sync: FSDP FULL_SHARD,,,,4,3,96,3,yes", "samples/s");
  const PublishedPredictor predictor({});
  const Prediction in_ms = predictor(time), per_second = predictor(rate);
  CHECK(in_ms.value.value() * per_second.value.value() == doctest::Approx(96e3));
  // One device has nothing to exchange.
  CHECK(*in_ms.baseline <= *in_ms.value);
  CHECK(*per_second.baseline >= *per_second.value);
  CHECK_FALSE(predictor(row("3D,2,2,2,4,3,24,,")).baseline);
  CHECK(predictor(row("3D,3,2,2,4,3,24,,")).reason.starts_with("f:2:n_gpus"));
}

TEST_CASE("published plan: gradients are summed as the row says, by default in fp32") {
  Claim claim = row("3D,2,2,2,4,3,24,,");
  CHECK(reduce_precision_of(claim) == Precision::fp32);
  claim.what["reduce_precision"] = "BF16";
  CHECK(reduce_precision_of(claim) == Precision::bf16);
  CHECK(Training(claim).dag().reduce_precision == Precision::bf16);
  claim.what["reduce_precision"] = "int8";
  CHECK(testing::refusal_of([&] { static_cast<void>(reduce_precision_of(claim)); }) ==
        "f:2:reduce_precision: 'int8'; accepted: FP32, FP16, BF16");
}

TEST_CASE("published plan: memory is that of the fullest GPU, of the size that the row says") {
  Claim claim = row("3D,2,2,2,4,3,24,,");
  const PeakMemory memory = Training(claim).memory();
  CHECK(memory.verdict == Verdict::fits);
  CHECK(memory.memory == Bytes{std::int64_t{80} << 30});
  CHECK(memory.needed.value > 0);
  claim.what["gpu_mem_gb"] = "40";
  CHECK(Training(claim).memory().memory == Bytes{std::int64_t{40} << 30});
  claim.what["gpu_mem_gb"] = "82";  // no other card
  CHECK(Training(claim).memory().memory == Bytes{std::int64_t{80} << 30});
}

TEST_CASE("published plan: of a run that failed there is a verdict on its memory") {
  Claim claim = row("3D,2,2,2,4,3,24,,");
  claim.what["status"] = "did not run";
  claim.what["split"] = "unscored";
  const Prediction prediction = PublishedPredictor({})(claim);
  CHECK_FALSE(prediction.value);
  CHECK(prediction.verdict == "fits");
  CHECK(prediction.reason.starts_with("did not run; memory fits: "));
  CHECK(prediction.peak_memory_gib.value() > 0);
}

}  // namespace parsim
