// In place of a refused plan: what is tried, by what alone is accepted.
#include "experiment/nearest_plan.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <optional>
#include <string>

#include "lowering/memory.hpp"
#include "strategies/degrees.hpp"
#include "strategies/price.hpp"
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

strategies::StrategyInput of_degrees(const Experiment& experiment, std::int32_t tp, std::int32_t pp,
                                     std::int32_t dp) {
  strategies::StrategyInput input = experiment.strategy_input();
  input.tensor_parallel = tp;
  input.pipeline_parallel = pp;
  input.data_parallel = dp;
  return input;
}

/// Accepts one plan alone, and has nothing to say on others.
Refusal only(const std::string& plan_id, const Network& network) {
  return [&, plan_id](const Plan& any) {
    return strategies::plan_id(network, any) == plan_id ? std::nullopt
                                                        : std::optional<std::string>("another");
  };
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
  const auto nearest = nearest_plan(refused, plan, only(wanted, refused.network));
  REQUIRE(nearest);
  CHECK(nearest->options == "--layout " + uneven + " without its samples and shares");
  CHECK(nearest->step == run_plan(equal, {same, {}, {}}).result.step_time);
}

TEST_CASE("nearest plan: degrees of the refused plan that are no powers of two are tried") {
  Request request = two_kinds("");
  request.cluster = "nodes:2x3,device=a100-sxm4-80,intra=300GB/s,inter=25GB/s";
  request.batch = 48;
  const Experiment experiment(request);
  const Plan plan = strategies::plan_tensor(of_degrees(experiment, 1, 2, 3));
  const std::string wanted = strategies::plan_id(experiment.network, plan);
  const auto nearest = nearest_plan(experiment, plan, only(wanted, experiment.network));
  REQUIRE(nearest);
  CHECK(nearest->options == "--strategy tensor --tp 1 --pp 2 --dp 3");
}

TEST_CASE("nearest plan: options that a refusal names are changed, several in a row") {
  Request request = two_kinds("");
  request.cluster = "nodes:2x2,device=a100-sxm4-80,intra=300GB/s,inter=25GB/s";
  request.batch = 32;
  request.zero_stage = 1;
  request.zero_group = {2};
  const Experiment experiment(request);
  const Plan plan = strategies::plan_tensor(of_degrees(experiment, 2, 1, 2));
  // As DeepSpeed: no groups; then, of tp 2 alone, only with shared tokens; others never.
  const auto refuse = [&](const Plan& any) -> std::optional<std::string> {
    const strategies::Degrees degrees = strategies::degrees_of(experiment.network, any);
    if (!any.layers.front().zero.group.all()) return "accepted: no --zero-group, or --launch x";
    if (degrees.tp != 2) return "accepted: --tp 2";
    if (!degrees.sequence_parallel.value_or(false)) return "accepted: --sequence-parallel";
    return std::nullopt;
  };
  const auto nearest = nearest_plan(experiment, plan, refuse);
  REQUIRE(nearest);
  CHECK(nearest->options ==
        "--strategy tensor --tp 2 --pp 1 --dp 2 without --zero-group --sequence-parallel");
}

TEST_CASE(
    "nearest plan: what a search chose for the refused plan is kept, but for what is changed") {
  Request request = two_kinds("");
  request.cluster = "nodes:2x2,device=a100-sxm4-80,intra=300GB/s,inter=25GB/s";
  const Experiment experiment(request);
  strategies::StrategyInput input = of_degrees(experiment, 1, 1, 4);
  input.zero_stage = 3;
  input.zero_group = {2};
  const Plan plan = strategies::with_memory_options(input, strategies::plan_tensor(input));
  // Of ZeRO 3 alone; with groups or without.
  const auto options = [&](bool groups) {
    const auto refuse = [&](const Plan& any) -> std::optional<std::string> {
      const ZeroSharding& zero = any.layers.front().zero;
      if (zero.stage != 3) return "accepted: something else";
      if (groups == zero.group.all()) return groups ? "accepted: groups" : "no --zero-group";
      return std::nullopt;
    };
    const auto nearest = nearest_plan(experiment, plan, refuse);
    return nearest ? nearest->options : "";
  };
  CHECK(options(true) == "--strategy tensor --tp 1 --pp 1 --dp 4 --zero 3 --zero-group 2");
  CHECK(options(false) == "--strategy tensor --tp 1 --pp 1 --dp 4 --zero 3");
}

TEST_CASE("nearest plan: without ZeRO, its groups go, too") {
  Request request = two_kinds("");
  request.cluster = "nodes:2x2,device=a100-sxm4-80,intra=300GB/s,inter=25GB/s";
  request.zero_stage = 3;
  request.zero_group = {2};
  request.given = {"--zero", "--zero-group"};
  const Experiment experiment(request);
  const Plan plan = strategies::strategy("data", "test").plan(experiment.strategy_input());
  const auto refuse = [&](const Plan& any) -> std::optional<std::string> {
    if (strategies::degrees_of(experiment.network, any).zero.value_or(0) == 0) return std::nullopt;
    return "accepted: --zero 0";
  };
  const auto nearest = nearest_plan(experiment, plan, refuse);
  REQUIRE(nearest);
  CAPTURE(nearest->options);
  CHECK(nearest->options.ends_with(" without --zero without --zero-group"));
}

TEST_CASE("nearest plan: of accepted plans that do not fit in memory, more of ZeRO is tried") {
  Request request = two_kinds("");
  request.cluster = "nodes:2x2,device=a100-sxm4-80,intra=300GB/s,inter=25GB/s";
  request.batch = 4;
  const Experiment all(request);
  strategies::StrategyInput input = all.strategy_input();
  const Plan plan = strategies::strategy("data", "test").plan(input);
  const auto peak = [&](std::int32_t stage) {
    input.zero_stage = stage;
    return lowering::memory_use(all.network, all.cluster,
                                strategies::with_memory_options(input, plan))
        .front()
        .total();
  };
  request.headroom = {0, {}};
  for (const std::string name : {"n0.gpu0", "n0.gpu1", "n1.gpu0", "n1.gpu1"}) {
    request.overrides.push_back(
        fmt::format("devices.{}.memory={}B", name, (peak(0) + peak(1)).value / 2));
  }
  const Experiment little(request);
  const auto of_data = [&](const Plan& any) -> std::optional<std::string> {
    if (any.strategy == "data") return std::nullopt;
    return "accepted: --strategy data";
  };
  const auto nearest = nearest_plan(little, plan, of_data);
  REQUIRE(nearest);
  CHECK(nearest->options.starts_with("--strategy data --zero "));
}

}  // namespace
}  // namespace parsim::experiment
