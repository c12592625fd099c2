// DeepSpeed's JSON: parallelism within its replicas, and states.
#include <doctest/doctest.h>

#include <fstream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/errors.hpp"
#include "experiment/experiment.hpp"
#include "experiment/trainer_file.hpp"
#include "tests/support/program.hpp"
#include "tests/support/refusal.hpp"

namespace parsim::experiment {
namespace {

LayoutFile deepspeed_file(const std::string& more, const std::string& experts = "") {
  Request request;
  request.network = "gpt:layers=8,hidden=64,heads=4,seq_length=32,vocab_size=256" + experts;
  request.cluster = "nodes:2x4,device=a100-sxm4-80,intra=300GB/s,inter=25GB/s";
  const Experiment experiment(request);
  return read_trainer_file("{\"train_batch_size\": 64, " + more + "}", "ds.json",
                           experiment.network, experiment.cluster);
}

TEST_CASE("deepspeed: AutoEP divides experts among replicas") {
  // Before, its table was ignored: 112 instead of 54 ms of four blocks of Mixtral on 8 H100.
  const auto text = [](const std::string& more, const std::string& before = "") {
    return before + "\"expert_parallel\": {\"enabled\": true, " + more + "}";
  };
  const std::string eight = ",experts=8,top_k=2";
  const std::string four = "\"autoep_size\": 4", at = "ds.json:1:expert_parallel.autoep_size: ";
  CHECK(deepspeed_file(text(four), eight).expert_parallel == 4);
  CHECK(!deepspeed_file(text("\"autoep_size\": 1"), eight).expert_parallel);
  CHECK(!deepspeed_file("\"expert_parallel\": {\"enabled\": false, " + four + "}", eight)
             .expert_parallel);
  const auto refused = [](const std::string& json, const std::string& experts) {
    return testing::refusal_of([&] { (void)deepspeed_file(json, experts); });
  };
  CHECK(refused(text(four), "") == at + "'4'; accepted: 1, for a network without experts");
  CHECK(refused(text(four, "\"tensor_parallel\": {\"autotp_size\": 2}, "), eight) ==
        at + "'4'; accepted: 1 with tensor_parallel.autotp_size");
  CHECK(refused(text("\"autoep_size\": 3"), eight) ==
        at + "'3'; accepted: a divisor of 8 experts and of 8 replicas");
  CHECK(refused(text(four + ", \"expert_tensor_parallel_size\": 2"), eight) ==
        "ds.json:1:expert_parallel.expert_tensor_parallel_size: '2'; accepted: 1");
}

TEST_CASE("deepspeed: states of half the bytes are refused by name") {
  // Before, they were ignored: 12 instead of 6 bytes a weight.
  const auto refused = [](const std::string& table, const std::string& key, const char* value) {
    return testing::refusal_of([&] {
      (void)deepspeed_file("\"" + table + "\": {\"enabled\": true, \"" + key + "\": " + value +
                           "}, \"zero_optimization\": {\"stage\": 2}");
    });
  };
  for (const auto& [table, key] : {std::pair{"bf16", "bf16_master_weights_and_grads"},
                                   {"bf16", "bf16_optimizer_states"},
                                   {"fp16", "fp16_master_weights_and_grads"}}) {
    const std::string where = std::string("ds.json:1:") + table + "." + key;
    CHECK(refused(table, key, "true") ==
          where + ": 'true'; accepted: false: master weights and states are in FP32 here");
    CHECK(refused(table, key, "false") == "accepted");
  }
}

TEST_CASE(
    "deepspeed: gradients are reduced in the precision of the weights, which \"auto\" leaves "
    "open") {
  // Before, "auto" was reduced in FP32: 907 ms -> 1.48 s for four blocks of Llama 3 8B on 8 H100.
  const testing::TemporaryFolder folder;
  const auto reduced = [&](const std::string& table, const std::vector<std::string>& flags) {
    Request request;
    request.network = "gpt:layers=8,hidden=64,heads=4,seq_length=32,vocab_size=256";
    request.cluster = "nodes:2x4,device=a100-sxm4-80,intra=300GB/s,inter=25GB/s";
    request.layout_file = request.plan_or_trainer_file = folder.folder() + "/ds.json";
    request.usual_settings = true;
    std::ofstream(request.layout_file) << "{\"train_batch_size\": 64" << table << "}";
    for (const std::string& flag : flags) request.given.insert(flag);
    if (request.given.contains("--precision")) request.precision = Precision::fp16;
    return Experiment(request).request.reduce_precision;
  };
  const std::string open = ", \"bf16\": {\"enabled\": \"auto\"}";
  CHECK(reduced(", \"bf16\": {\"enabled\": true}", {}) == Precision::bf16);
  CHECK(reduced(open, {}) == Precision::bf16);
  CHECK(reduced(open, {"--precision"}) == Precision::fp16);
  CHECK(reduced(open, {"--reduce-precision"}) == Precision::fp32);
  CHECK(reduced(open + ", \"communication_data_type\": \"fp32\"", {}) == Precision::fp32);
  CHECK(reduced("", {}) == Precision::fp32);
}

TEST_CASE("deepspeed: weights fetched by all-reduces are refused, where stage 3 fetches them") {
  const std::string text = ", \"stage3_use_all_reduce_for_fetch_params\": true}";
  CHECK(testing::refusal_of([&] {
          (void)deepspeed_file("\"zero_optimization\": {\"stage\": 3" + text);
        }).ends_with("accepted: false, as parsim simulates all-gathers"));
  CHECK(deepspeed_file("\"zero_optimization\": {\"stage\": 2" + text).zero_stage == 2);
}

TEST_CASE("deepspeed: earlier names of keys count") {
  // Before, "bfloat16" was FP32: 2.63 instead of 1.20 s of eight blocks of Llama 3.
  CHECK(deepspeed_file("\"bfloat16\": {\"enabled\": true}").precision == Precision::bf16);
  CHECK(deepspeed_file("\"bfloat16\": {\"enabled\": true}, \"bf16\": {\"enabled\": false}")
            .precision == Precision::fp32);
  const std::string stage = "\"zero_optimization\": {\"stage\": 3, ";
  CHECK(deepspeed_file(stage + "\"prefetch_bucket_size\": 0}").usual_bucket == Bytes{0});
  CHECK(testing::refusal_of([&] {
          (void)deepspeed_file(stage + "\"cpu_offload_param\": true}");
        }).ends_with("zero_optimization.cpu_offload_param: 'true'; accepted: none"));
}

TEST_CASE("deepspeed, accelerate: each replica has as many samples of a micro-batch") {
  // Before, 16 samples in 4 micro-batches ran on 4 of 8 GPUs, 20 times as fast as 32.
  const testing::TemporaryFolder folder;
  const auto refused = [&](const std::string& file, const std::string& text, std::int64_t batch) {
    Request request;
    request.network = "gpt:layers=8,hidden=64,heads=4,seq_length=32,vocab_size=256";
    request.cluster = "nodes:2x4,device=a100-sxm4-80,intra=300GB/s,inter=25GB/s";
    request.batch = batch;
    request.layout_file = folder.write(file, text);
    if (file.ends_with("yaml")) request.micro_batches = 4;
    return testing::refusal_of([&] { const Experiment experiment(request); });
  };
  const std::string wanted =
                        "--batch: 16 samples for 8 replicas in 4 micro-batches; accepted: a "
                        "multiple of 32",
                    deepspeed =
                        "{\"train_batch_size\": \"auto\", \"gradient_accumulation_steps\": 4}",
                    accelerate = "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n";
  CHECK(refused("ds.json", deepspeed, 16) == wanted);
  CHECK(refused("fsdp.yaml", accelerate, 16) == wanted);
  CHECK(refused("ds.json", deepspeed, 32) == "accepted");
  CHECK(refused("fsdp.yaml", accelerate, 32) == "accepted");
}

TEST_CASE("deepspeed: elastic batches are refused") {
  CHECK(testing::refusal_of([] {
          (void)deepspeed_file("\"elasticity\": {\"enabled\": true}");
        }).ends_with("elasticity.enabled: 'true'; accepted: none"));
  CHECK_NOTHROW((void)deepspeed_file("\"elasticity\": {\"enabled\": false}"));
}

TEST_CASE("deepspeed: settings that change the work of a step are refused") {
  for (const std::string table :
       {"progressive_layer_drop", "curriculum_learning", "data_efficiency", "eigenvalue"}) {
    CAPTURE(table);
    CHECK(testing::refusal_of([&] {
            (void)deepspeed_file("\"" + table + "\": {\"enabled\": true}");
          }).ends_with(table + ".enabled: 'true'; accepted: none"));
    CHECK_NOTHROW((void)deepspeed_file("\"" + table + "\": {\"enabled\": false}"));
  }
  CHECK(testing::refusal_of([] {
          (void)deepspeed_file("\"compile\": {\"deepcompile\": true}");
        }).ends_with("compile.deepcompile: 'true'; accepted: none"));
}

TEST_CASE("deepspeed: what its file leaves \"auto\" is --batch and --micro-batches") {
  Request request;
  request.network = "gpt:layers=8,hidden=64,heads=4,seq_length=32,vocab_size=256";
  request.cluster = "nodes:2x4,device=a100-sxm4-80,intra=300GB/s,inter=25GB/s";
  const Experiment experiment(request);
  const auto filled = [&](const std::string& text, std::optional<std::int64_t> batch) {
    return read_trainer_file(text, "ds.json", experiment.network, experiment.cluster, batch);
  };
  const std::string start = "{\"train_batch_size\": \"auto\", ";
  // As Hugging Face's examples: all three, and the precision.
  const LayoutFile open = filled(start +
                                     "\"train_micro_batch_size_per_gpu\": \"auto\", "
                                     "\"gradient_accumulation_steps\": \"auto\", "
                                     "\"bf16\": {\"enabled\": \"auto\"}}",
                                 64);
  CHECK(!open.batch);
  CHECK(!open.micro_batches);
  CHECK(!open.precision);
  // 64 samples, of which 8 GPUs take 2 each at a time.
  const std::string each = start +
                           "\"train_micro_batch_size_per_gpu\": 2, "
                           "\"gradient_accumulation_steps\": \"auto\"}";
  CHECK(filled(each, 64).micro_batches == 4);
  CHECK_THROWS_WITH_AS((void)filled(each, 40),
                       "--batch: 40 samples in micro-batches of 16 over all replicas; accepted: a "
                       "multiple",
                       InputError);
  // The file's own numbers need none: 2 x 8 x 3.
  const LayoutFile own = filled(start +
                                    "\"train_micro_batch_size_per_gpu\": 2, "
                                    "\"gradient_accumulation_steps\": 3}",
                                {});
  CHECK(own.batch == 48);
  CHECK(own.micro_batches == 3);
}

}  // namespace
}  // namespace parsim::experiment
