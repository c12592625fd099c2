#include "report/gained.hpp"

#include <doctest/doctest.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/approx.hpp"

namespace parsim::report {
namespace {

using Lines = std::vector<std::string>;

/// LeNet-5 on a GPU, of which only the objective and the trainer of the run matter here.
struct Asked {
  explicit Asked(const std::string& trainer,
                 strategies::Objective objective = strategies::Objective::time)
      : experiment(request()) {
    experiment.request.objective = objective;
    experiment.layout.emplace();
    experiment.layout->trainer = trainer;
  }
  static experiment::Request request() {
    experiment::Request request;
    request.network = "lenet5";
    request.cluster = "star:1,device=v100-sxm2,rate=10GB/s";
    return request;
  }
  experiment::Experiment experiment;
};

/// A plan on one GPU of 16 GiB that computes, sends and waits so many seconds.
experiment::RunResult row(const std::string& strategy, double compute, double sends, double waits) {
  experiment::RunResult result;
  result.strategy = result.plan_id = strategy;
  result.step_time = Seconds{compute + sends + waits};
  experiment::DeviceResult device;
  device.name = "gpu0";
  device.kind = DeviceKind::gpu;
  device.use = {Seconds{compute}, Seconds{sends}, Seconds{waits}};
  device.capacity = Bytes{16LL << 30};
  device.headroom = {0, {}};
  result.devices = {device};
  strategies::Degrees& degrees = result.degrees;
  degrees.tp = degrees.pp = degrees.dp = degrees.cp = degrees.ep = degrees.vp = 1;
  degrees.zero = 0;
  degrees.recompute = strategies::Recompute::none;
  result.stages.resize(1);
  result.trainers.emplace();
  return result;
}

TEST_CASE("gained: the differences of the rows' own times, and the options that differ, by hand") {
  experiment::RunResult best = row("best", 4, 0.5, 0), mine = row("layout", 6, 0.75, 2.25);
  mine.degrees.tp = 4;
  mine.degrees.recompute = strategies::Recompute::full;
  mine.choices = {{"ZeRO groups of", "16 replicas"}, {"gradient buckets", "3"}};
  best.choices = {{"ZeRO groups of", "8 replicas"}, {"gradient buckets", "3"}};
  best.trainers = {{"flagscale", "megatron"}};
  const Asked asked("megatron");
  const auto gained = gained_row(asked.experiment, {best, mine});
  REQUIRE(gained);
  CHECK(gained->against == "layout");
  CHECK(gained->best == "best");
  CHECK(gained->ratio.value() == testing::approx(2));
  CHECK(gained->seconds->count() == testing::approx(4.5));
  // 2.25 of waiting, 2 of computing, 0.25 of communication: they add up to 4.5
  CHECK(gained->reasons == Lines{"waiting for other GPUs 2.25 s less", "computing 2.00 s less",
                                 "communication that no kernel hides 250 ms less"});
  CHECK(gained->changes == Lines{"tp 1 instead of 4", "recomputation none instead of full",
                                 "ZeRO groups of 8 replicas instead of 16 replicas"});
  REQUIRE(gained->launchable);
  CHECK(gained->launchable->strategy == "best");
  CHECK(gained->lines ==
        Lines{"against your run (tp 4 x pp 1 x dp 1, recompute full): 9.00 s -> 4.50 s, 2.00 times "
              "as fast: waiting for other GPUs 2.25 s less, computing 2.00 s less, communication "
              "that no kernel hides 250 ms less",
              "with tp 1 instead of 4, recomputation none instead of full, ZeRO groups of 8 "
              "replicas instead of 16 replicas",
              "megatron can launch it (plan --launch megatron)"});
}

TEST_CASE("gained: degrees that differ within a plan are one change") {
  experiment::RunResult best = row("best", 4, 0.5, 0), mine = row("layout", 6, 0.75, 2.25);
  best.degrees.tp = best.degrees.dp = best.degrees.ep = std::nullopt;
  const auto changes = [](const experiment::RunResult& first, const experiment::RunResult& second) {
    const auto gained = gained_row(Asked("megatron").experiment, {first, second});
    REQUIRE(gained);
    return gained->changes;
  };
  CHECK(changes(best, mine) == Lines{"degrees that differ between layers or stages"});
  std::swap(best.degrees, mine.degrees);
  CHECK(changes(best, mine) == Lines{"the same degrees in all layers"});
  best.degrees = mine.degrees;
  CHECK(changes(best, mine) == Lines{"other blocks, GPUs or samples of its stages"});
}

TEST_CASE("gained: where the trainer cannot launch the winner, the best row that it can") {
  const experiment::RunResult best = row("best", 4, 0, 0), mine = row("layout", 8, 0, 0);
  experiment::RunResult data = row("data", 5, 0, 0), slower = row("pipeline", 9, 0, 0);
  data.degrees.dp = slower.degrees.dp = 2;
  data.trainers = slower.trainers = {{"deepspeed"}};
  const Asked asked("deepspeed");
  const auto gained = gained_row(asked.experiment, {best, data, mine, slower});
  REQUIRE(gained);
  REQUIRE(gained->launchable);
  CHECK(gained->launchable->strategy == "data");
  CHECK(gained->launchable->ratio == testing::approx(1.6));
  CHECK(gained->lines.back() ==
        "deepspeed cannot launch best, but --strategy data: 8.00 s -> 5.00 s, 1.60 times as fast");
  // What is slower than the run is of no use to it.
  const auto none = gained_row(asked.experiment, {best, mine, slower});
  REQUIRE(none);
  CHECK(!none->launchable);
  CHECK(none->lines.back().starts_with("deepspeed can launch none of the better plans"));
}

TEST_CASE("gained: a run that is the fastest is said to be, also under another name") {
  const experiment::RunResult mine = row("layout", 4, 0, 0), other = row("data", 5, 0, 0);
  const Asked asked("megatron");
  const auto gained = gained_row(asked.experiment, {mine, other});
  REQUIRE(gained);
  CHECK(gained->best == "layout");
  CHECK(gained->ratio == 1.0);
  CHECK(gained->lines == Lines{"your run (tp 1 x pp 1 x dp 1) is the fastest of these plans: "
                               "nothing to gain; the next, data, takes 5.00 s instead of 4.00 s"});
  const auto nearly = gained_row(asked.experiment, {mine, row("data", 4.001, 0, 0)});
  REQUIRE(nearly);
  CHECK(nearly->lines.front().ends_with("nothing to gain; the next, data, takes as long"));
  experiment::RunResult same = row("best", 4, 0, 0);
  same.plan_id = mine.plan_id;
  const auto equal = gained_row(asked.experiment, {same, mine, other});
  REQUIRE(equal);
  CHECK(equal->best == "layout");
  CHECK(equal->lines == gained->lines);
}

TEST_CASE("gained: a run that does not fit in memory has no ratio") {
  experiment::RunResult best = row("best", 4, 0, 0), mine = row("layout", 3, 0, 0);
  best.degrees.zero = 3;
  mine.devices.front().memory.weights = Bytes{18LL << 30};
  const Asked asked("");
  const auto gained = gained_row(asked.experiment, {best, mine});
  REQUIRE(gained);
  CHECK(!gained->ratio);
  CHECK(!gained->seconds);
  CHECK(gained->lines == Lines{"your run (tp 1 x pp 1 x dp 1) does not fit in memory: needs 2.00 "
                               "GiB more (gpu0); best fits and takes 4.00 s",
                               "with zero 3 instead of 0"});
  best.devices.front().memory.weights = Bytes{17LL << 30};
  const auto nothing = gained_row(asked.experiment, {best, mine});
  REQUIRE(nothing);
  CHECK(!nothing->best);
  CHECK(nothing->lines.size() == 1);
}

TEST_CASE("gained: nothing without a run of the user's, or without another plan") {
  const Asked asked("");
  experiment::RunResult refused = row("data", 0, 0, 0);
  refused.error = "no plan";
  CHECK(!gained_row(asked.experiment, {row("best", 4, 0, 0), row("data", 5, 0, 0)}));
  CHECK(!gained_row(asked.experiment, {row("layout", 4, 0, 0), refused}));
}

TEST_CASE("gained: by --objective cost what is compared is the cost") {
  experiment::RunResult best = row("best", 5, 0, 0), mine = row("layout", 4, 0, 0);
  best.degrees.dp = 2;
  best.upkeep.cost = Money{1};
  mine.upkeep.cost = Money{4};
  const Asked asked("", strategies::Objective::cost);
  const auto gained = gained_row(asked.experiment, {best, mine});
  REQUIRE(gained);
  CHECK(gained->ratio.value() == testing::approx(4));
  CHECK(gained->seconds->count() == testing::approx(-1));
  CHECK(gained->lines.front() ==
        "against your run (tp 1 x pp 1 x dp 1): 25.0 % of the cost (step 4.00 s -> 5.00 s): "
        "computing 1.00 s more");
}

}  // namespace
}  // namespace parsim::report
