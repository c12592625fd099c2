// What FSDP gathers and reduces at once.
#include <doctest/doctest.h>

#include <string>

#include "experiment/experiment.hpp"
#include "experiment/run.hpp"
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

}  // namespace parsim::experiment
