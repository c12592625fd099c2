// Plans as trainers run them: whose steps searches choose by, and what a trainer's file is compared
// with.
#include "experiment/trainer_run.hpp"

#include <doctest/doctest.h>

#include <optional>
#include <string>

#include "experiment/comparison.hpp"
#include "experiment/run.hpp"
#include "tests/support/program.hpp"

namespace parsim::experiment {
namespace {

Request of_four_blocks() {
  Request request;
  request.network = "gpt:layers=4,hidden=1024,heads=16,seq_length=256,vocab_size=1024";
  request.cluster = "nodes:2x2,device=a100-sxm4-80,intra=300GB/s,inter=10GB/s";
  return request;
}

TEST_CASE(
    "trainer run: plans without ZeRO, compared with a file of DeepSpeed, sum after the backward "
    "pass") {
  const testing::TemporaryFolder folder;
  Request request = of_four_blocks();
  request.layout_file =
      folder.write("ds.json",
                   "{\"train_batch_size\": 16, \"bf16\": {\"enabled\": true}, "
                   "\"zero_optimization\": {\"stage\": 3, \"overlap_comm\": true}}");
  const auto plan = [&] {
    return make_plan(Experiment(request), strategies::strategy("data", "test")).plan;
  };
  const Plan whole = plan();
  CHECK(whole.buckets.size() == 1);
  const Experiment experiment(request);
  CHECK(simulated_step(experiment, whole) ==
        simulated_step(experiment, run_by("deepspeed", experiment, whole)));
  CHECK(run_by("megatron", experiment, whole).buckets.size() > 1);
  request.zero_stage = 1;  // which it overlaps, in buckets of 500 million elements
  CHECK(plan().buckets.size() == 1);
  request.network = "gpt:layers=4,hidden=4096,heads=16,seq_length=256,vocab_size=1024";
  CHECK(plan().buckets.size() == 2);  // of 810 million
  request.zero_stage.reset();
  request.given = {"--bucket"};
  CHECK(plan().buckets.size() > 1);
}

TEST_CASE("trainer run: a search chooses by the step of the trainer that is to run the plan") {
  Request request = of_four_blocks();
  request.batch = 16;
  const Experiment any(request);
  const Plan plan = make_plan(any, strategies::strategy("data", "test")).plan;
  CHECK(searched(any, plan) == plan);
  request.launcher = "deepspeed";
  const Experiment launched(request);
  CHECK(searched(launched, plan) == run_by("deepspeed", any, plan));
  CHECK(searched(launched, plan) != plan);
  // The plan that is written keeps its buckets: the file does not carry them.
  CHECK(make_plan(launched, strategies::strategy("data", "test")).plan == plan);
}

}  // namespace
}  // namespace parsim::experiment
