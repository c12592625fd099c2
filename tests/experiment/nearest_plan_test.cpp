// In place of a refused plan: what is tried, by what alone is accepted.
#include "experiment/nearest_plan.hpp"

#include <doctest/doctest.h>

#include <string>

#include "strategies/degrees.hpp"
#include "tests/support/program.hpp"

namespace parsim::experiment {
namespace {

/// Pairs of A100s, then single V100s, with samples of the first stage's replicas or equal shares.
std::string layout_of_pairs(const std::string& samples) {
  return "micro_batches = 4\n[[stages]]\nblocks = \"0-5\"\n"
         "groups = [[\"n0.gpu0\", \"n0.gpu1\"], [\"n0.gpu2\", \"n0.gpu3\"]]\n" +
         samples +
         "[[stages]]\nblocks = \"6-7\"\n"
         "groups = [[\"n1.gpu0\"], [\"n1.gpu1\"], [\"n1.gpu2\"], [\"n1.gpu3\"]]\n";
}

Request two_kinds(const std::string& layout) {
  Request request;
  request.network = "gpt:layers=8,hidden=64,heads=4,seq_length=32,vocab_size=256";
  request.cluster = "nodes:2x4,device=a100-sxm4-80*4+v100-sxm2*4,intra=300GB/s,inter=25GB/s";
  request.batch = 32;
  request.layout_file = layout;
  return request;
}

TEST_CASE("nearest plan: the layout that was refused, with equal shares, is tried") {
  const testing::TemporaryFolder folder;
  const std::string uneven = folder.write("uneven.toml", layout_of_pairs("samples = [5, 3]\n")),
                    even = folder.write("even.toml", layout_of_pairs(""));
  const Experiment refused(two_kinds(uneven)), equal(two_kinds(even));
  const Plan plan = make_plan(refused, layout_strategy()).plan,
             same = make_plan(equal, layout_strategy()).plan;
  const std::string wanted = strategies::plan_id(equal.network, same);
  CHECK(wanted != strategies::plan_id(refused.network, plan));
  const auto nearest = nearest_plan(refused, plan, [&](const Plan& any) {
    return strategies::plan_id(refused.network, any) == wanted;
  });
  REQUIRE(nearest);
  CHECK(nearest->options == "--layout " + uneven + " without its samples and shares");
  CHECK(nearest->step == run_plan(equal, {same, {}, {}}).result.step_time);
}

TEST_CASE("nearest plan: degrees of the refused plan that are no powers of two are tried") {
  Request request = two_kinds("");
  request.cluster = "nodes:2x3,device=a100-sxm4-80,intra=300GB/s,inter=25GB/s";
  request.batch = 48;
  const Experiment experiment(request);
  strategies::StrategyInput input = experiment.strategy_input();
  input.tensor_parallel = 1;
  input.pipeline_parallel = 2;
  input.data_parallel = 3;
  const Plan plan = strategies::strategy("tensor", "test").plan(input);
  const std::string wanted = strategies::plan_id(experiment.network, plan);
  const auto nearest = nearest_plan(experiment, plan, [&](const Plan& any) {
    return strategies::plan_id(experiment.network, any) == wanted;
  });
  REQUIRE(nearest);
  CHECK(nearest->options == "--strategy tensor --tp 1 --pp 2 --dp 3");
}

}  // namespace
}  // namespace parsim::experiment
