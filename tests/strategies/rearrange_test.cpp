// Pipelines rearranged from others: by the same closed form as the search that looks at all of
// them, and where a large cluster's search leaves something out, better.
#include "strategies/mixed/rearrange.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <random>

#include "strategies/mixed/candidates.hpp"
#include "strategies/mixed/search.hpp"
#include "strategies/mixed_stages.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/world.hpp"
#include "topologies/cluster_file.hpp"

namespace parsim::testing {
namespace {

using strategies::PipelineSchedule;
using strategies::PipelineSends;
using strategies::StrategyInput;
using strategies::mixed::Detail;
using strategies::mixed::DeviceClass;
using strategies::mixed::Pipeline;
using strategies::mixed::rearranged;
using strategies::mixed::ShapedPipeline;
using strategies::mixed::StageCosts;
using strategies::mixed::StageShape;
using strategies::mixed::StageTable;

constexpr double unlimited = std::numeric_limits<double>::infinity();

/// Two kinds of machines, on a switch.
std::string machines(const std::string& first, int first_count, const std::string& second,
                     int second_count, int devices) {
  const std::string guessed = "latency = \"5 us\"\nlabel = \"guessed\"\nsource = \"test\"\n";
  std::string text = "name = \"mixed\"\nswitches = [\"ethernet\"]\n";
  const auto add = [&](const std::string& name, const std::string& model, int count) {
    text += fmt::format(
        "[[nodes]]\nname = \"{}\"\ncount = {}\ndevices = [{{ model = \"{}\", count = {} }}]\n"
        "switches = [\"bus\"]\n[[nodes.links]]\na = \"gpu*\"\nb = \"bus\"\n"
        "effective_rate = \"60 GB/s\"\n{}",
        name, count, model, devices, guessed);
  };
  add("a", first, first_count);
  add("b", second, second_count);
  return text + "[[links]]\na = \"*.bus\"\nb = \"ethernet\"\neffective_rate = \"100 Gbit/s\"\n" +
         guessed;
}

ShapedPipeline shaped(const std::vector<StageShape>& shapes, const Pipeline& pipeline) {
  ShapedPipeline result;
  for (const auto& stage : pipeline.stages) {
    result.shapes.push_back(shapes[stage.shape]);
    result.first_block.push_back(stage.first_block);
  }
  result.step = pipeline.step;
  return result;
}

}  // namespace

TEST_CASE("rearranged: seldom far from the best of all pipelines") {
  std::mt19937 random(3);
  const std::vector<std::string> models{"a100-sxm4-40", "v100-sxm2", "t4", "rtx-3090"};
  int near = 0, all = 0;
  for (const PipelineSchedule schedule :
       {PipelineSchedule::one_f_one_b, PipelineSchedule::zero_bubble,
        PipelineSchedule::zero_bubble_h2, PipelineSchedule::gpipe}) {
    for (int i = 0; i < 4; ++i) {
      const std::size_t first = random() % models.size();
      const World world(
          "gpt:layers=8,hidden=1024,heads=8,seq_length=256,vocab_size=4096",
          topologies::parse_cluster(
              machines(models[first], 1, models[(first + 1) % models.size()], 1, 4), "test.toml"));
      StrategyInput input = world.input(32);
      input.optimizer = Optimizer::adam;
      input.schedule = schedule;
      if (i % 2 == 1) input.pipeline_sends = PipelineSends::blocking;
      const std::int32_t number = random() % 2 == 0 ? 8 : 16;
      const std::vector<DeviceClass> classes = strategies::mixed::device_classes(input, 4);
      StageCosts costs(input, classes);
      const auto shapes = stage_shapes(input, classes, costs, number, Detail::all);
      std::int64_t steps = std::numeric_limits<std::int64_t>::max();
      const std::vector<Pipeline> found =
          best_pipelines(input, classes, costs, shapes, number, 200, unlimited, Detail::all, steps);
      REQUIRE(!found.empty());
      StageTable table(input, classes, costs, number);
      std::vector<ShapedPipeline> priced;
      for (const Pipeline& one : found) {
        if (auto closer = table.priced(shaped(shapes, one), unlimited)) priced.push_back(*closer);
      }
      REQUIRE(!priced.empty());
      const auto shorter = [](const ShapedPipeline& a, const ShapedPipeline& b) {
        return a.step < b.step;
      };
      const ShapedPipeline best = *std::min_element(priced.begin(), priced.end(), shorter);
      // From the worst that is kept there is a way to the best.
      ShapedPipeline start = *std::max_element(priced.begin(), priced.end(), shorter);
      const double before = start.step;
      start.step = unlimited;
      const ShapedPipeline other = rearranged(input, classes, table, start, 1, unlimited).at(0);
      CHECK(other.step <= before * (1 + 1e-9));
      near += other.step <= 1.01 * best.step ? 1 : 0;
      ++all;
    }
  }
  CAPTURE(near);
  CHECK(near * 4 >= all * 3);
}

TEST_CASE("rearranged: a stage that waits for its sends is busy with them, by hand") {
  const World world(
      "gpt:layers=6,hidden=512,heads=8,seq_length=256,vocab_size=4096",
      topologies::parse_cluster(machines("a100-sxm4-40", 1, "v100-sxm2", 1, 2), "test.toml"));
  StrategyInput input = world.input(32);
  const std::int32_t number = 16;
  const std::vector<DeviceClass> classes = strategies::mixed::device_classes(input, 4);
  StageCosts costs(input, classes);
  const std::vector<StageShape> shapes{{{{0, 1, 2, {1, 1}}}}, {{{1, 1, 2, {1, 1}}}}};
  const auto all = [&](PipelineSends sends) {
    input.pipeline_sends = sends;
    std::int64_t steps = std::numeric_limits<std::int64_t>::max();
    return best_pipelines(input, classes, costs, shapes, number, 100, unlimited, Detail::all,
                          steps);
  };
  const std::vector<Pipeline> overlapped = all(PipelineSends::overlapped);
  int compared = 0;
  for (const Pipeline& one : all(PipelineSends::blocking)) {
    if (one.stages.size() != 2) continue;
    const auto& [first, last] = std::pair(one.stages[0], one.stages[1]);
    const auto same = std::find_if(overlapped.begin(), overlapped.end(), [&](const Pipeline& o) {
      return o.stages.size() == 2 && o.stages[0].shape == first.shape &&
             o.stages[1].first_block == last.first_block;
    });
    if (same == overlapped.end()) continue;
    const std::size_t blocks = costs.blocks(), border = last.first_block;
    const double load = costs.times(shapes[first.shape])[border];
    const double behind = costs.times(shapes[last.shape])[border * (blocks + 1) + blocks];
    const auto send = costs.send(shapes[first.shape], shapes[last.shape], border);
    const double in_turn = (load + behind + 2 * send.time) / 2;
    const double period = std::max({load, behind, in_turn, send.on_links});
    const double busy = std::max(load, behind) + 2 * send.time;
    CHECK(one.step - same->step == approx((number - 1) * std::max(0.0, busy - period)));
    ++compared;
  }
  CHECK(compared >= 5);
}

TEST_CASE("rearranged: of blocking sends layouts by both closed forms, in turn") {
  const World world(
      "gpt:layers=8,hidden=512,heads=8,seq_length=256,vocab_size=4096",
      topologies::parse_cluster(machines("a100-sxm4-40", 2, "v100-sxm2", 2, 2), "test.toml"));
  StrategyInput input = world.input(32);
  input.micro_batches = 8;
  for (const strategies::MixedStages& one : strategies::mixed_stages(input, 16)) {
    CHECK_FALSE(one.waits);
  }
  input.pipeline_sends = PipelineSends::blocking;
  std::vector<strategies::MixedStages> all = strategies::mixed_stages(input, 16);
  const auto waits = [](const strategies::MixedStages& one) { return one.waits; };
  const auto waiting = std::count_if(all.begin(), all.end(), waits);
  REQUIRE(waiting >= 2);
  REQUIRE(std::ssize(all) - waiting >= 2);
  strategies::mixed::Candidates candidates(world.cluster, all);
  for (const bool expected : {true, false, true, false}) {
    CHECK(candidates.next(unlimited).value().waits == expected);
  }
}

TEST_CASE("rearranged: a large cluster's pipeline returns to machines of the first kind") {
  const World world(
      "gpt:layers=24,hidden=2048,heads=16,seq_length=1024,vocab_size=32000",
      topologies::parse_cluster(machines("a100-sxm4-40", 3, "v100-sxm2", 3, 8), "test.toml"));
  StrategyInput input = world.input(128);
  input.precision = Precision::fp16;
  input.optimizer = Optimizer::adam;
  input.micro_batches = 32;
  input.zero_stage = 1;
  const std::vector<DeviceClass> classes = strategies::mixed::device_classes(input, 4);
  StageCosts costs(input, classes);
  const auto shapes = stage_shapes(input, classes, costs, 32, Detail::coarse);
  std::int64_t steps = std::numeric_limits<std::int64_t>::max();
  const std::vector<Pipeline> coarse =
      best_pipelines(input, classes, costs, shapes, 32, 1, unlimited, Detail::coarse, steps);
  REQUIRE(!coarse.empty());
  StageTable table(input, classes, costs, 32);
  const auto start = table.priced(shaped(shapes, coarse.front()), unlimited);
  REQUIRE(start);
  const auto found = strategies::mixed_stages(input, 1);
  REQUIRE(!found.empty());
  CAPTURE(start->step);
  CAPTURE(found.front().step);
  CHECK(found.front().step < 0.98 * start->step);
}

TEST_CASE("rearranged: keeps the degrees that are given") {
  const World world(
      "gpt:layers=16,hidden=1024,heads=16,seq_length=512,vocab_size=8000",
      topologies::parse_cluster(machines("a100-sxm4-40", 2, "v100-sxm2", 2, 8), "test.toml"));
  StrategyInput input = world.input(64);
  input.optimizer = Optimizer::adam;
  input.micro_batches = 16;
  input.tensor_parallel = 2;
  input.data_parallel = 2;
  input.pipeline_parallel = 6;
  const auto found = strategies::mixed_stages(input, 8);
  REQUIRE(!found.empty());
  for (const auto& one : found) {
    CHECK(one.layout.stages.size() == 6);
    for (const auto& stage : one.layout.stages) {
      CHECK(stage.groups.size() == 2);
      for (const auto& group : stage.groups) CHECK(group.size() == 2);
    }
  }
}

}  // namespace parsim::testing
