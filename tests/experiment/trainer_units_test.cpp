// What FSDP gathers and reduces at once.
#include <doctest/doctest.h>

#include <optional>
#include <string>

#include "experiment/experiment.hpp"
#include "experiment/run.hpp"
#include "experiment/trainer_run.hpp"
#include "strategies/price.hpp"
#include "tests/support/program.hpp"

namespace parsim::experiment {

TEST_CASE("trainer units: FSDP of torchtitan and accelerate has one of each block") {
  const testing::TemporaryFolder folder;
  const auto buckets = [&](const std::string& name, const std::string& text) {
    Request request;
    request.network = "gpt:layers=4,hidden=64,heads=4,seq_length=32,vocab_size=256";
    request.cluster = "nodes:2x4,device=a100-sxm4-80,intra=240GB/s,inter=25GB/s";
    request.batch = 16;
    request.layout_file = folder.write(name, text);
    if (name.ends_with("yaml")) request.given = {"--batch"};
    const Experiment experiment(request);
    return make_plan(experiment, layout_strategy()).plan.buckets.size();
  };
  CHECK(buckets("fsdp.toml",
                "[training]\nlocal_batch_size = 2\nseq_len = 32\n[parallelism]\n"
                "data_parallel_shard_degree = 8\n") == 5);
  const std::string accelerate =
      "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 8\nnum_machines: 2\n"
      "fsdp_config:\n  fsdp_sharding_strategy: FULL_SHARD\n";
  CHECK(buckets("wrapped.yaml", accelerate + "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n") ==
        5);
  CHECK(buckets("whole.yaml", accelerate) == 1);
}

// But DeepSpeed gathers up to 50 million elements ahead of their use.
TEST_CASE("trainer units: --strategy fsdp is what files of stage 3 run") {
  const testing::TemporaryFolder folder;
  Request request;
  request.network = "gpt:layers=4,hidden=64,heads=4,seq_length=32,vocab_size=256";
  request.cluster = "nodes:2x4,device=a100-sxm4-80,intra=240GB/s,inter=25GB/s";
  request.batch = 16;
  request.zero_of_alias = {{"data", 3}};
  const Experiment asked(request);
  const Plan fsdp = make_plan(asked, strategies::strategy("data", "test")).plan;
  CHECK(fsdp.buckets.size() == 5);
  for (const char* trainer : {"torchtitan", "accelerate", "megatron"}) {
    CAPTURE(trainer);
    CHECK(run_by(trainer, asked, fsdp).buckets == fsdp.buckets);
  }
  const auto read = [&](const std::string& name, const std::string& text,
                        std::optional<Bytes> bucket = {}) {
    Request with = request;
    with.zero_of_alias = {};
    with.bucket = bucket;
    with.layout_file = folder.write(name, text);
    return make_plan(Experiment(with), layout_strategy()).plan.buckets;
  };
  const std::string deepspeed =
      R"({"zero_optimization": {"stage": 3}, "train_micro_batch_size_per_gpu": 2,)"
      R"( "train_batch_size": 16})";
  CHECK(read("zero.json", deepspeed).size() == 1);
  CHECK(read("zero.json", deepspeed) == run_by("deepspeed", asked, fsdp).buckets);
  CHECK(read("zero.json", deepspeed, strategies::bucket_of_block) == fsdp.buckets);
  const std::string layout =
      "zero = 3\n[[stages]]\nblocks = \"0-3\"\ngroups = [[\"n0.gpu0\"], [\"n1.gpu0\"]]\n";
  CHECK(read("stage3.toml", layout) == fsdp.buckets);
  CHECK(read("stage3.toml", layout, strategies::ddp_bucket).size() == 1);
}

}  // namespace parsim::experiment
