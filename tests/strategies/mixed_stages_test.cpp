// Stages that differ: the search against all pipelines of a space small enough to enumerate, what
// it leaves out, and that its plans compute what the unsplit network computes.
#include "strategies/mixed_stages.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <random>
#include <set>

#include "lowering/lower.hpp"
#include "strategies/blocks.hpp"
#include "strategies/mixed/search.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/meaning.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/world.hpp"
#include "topologies/cluster_file.hpp"

namespace parsim::testing {
namespace {

using strategies::Layout;
using strategies::StrategyInput;
using strategies::mixed::DeviceClass;
using strategies::mixed::Member;
using strategies::mixed::Placement;
using strategies::mixed::StageCosts;
using strategies::mixed::StageShape;

/// Machines of one device type each, joined by a switch.
std::string machines(const std::vector<std::string>& models, const std::vector<int>& counts,
                     const std::string& rate) {
  std::string text = "name = \"mixed\"\nswitches = [\"ethernet\"]\n";
  const std::string guessed = "latency = \"5 us\"\nlabel = \"guessed\"\nsource = \"test\"\n";
  for (std::size_t m = 0; m < models.size(); ++m) {
    text += fmt::format(
        "[[nodes]]\nname = \"m{}\"\ndevices = [{{ model = \"{}\", count = {} }}]\n"
        "switches = [\"bus\"]\n[[nodes.links]]\na = \"gpu*\"\nb = \"bus\"\n"
        "effective_rate = \"12 GB/s\"\n{}",
        m, models[m], counts[m], guessed);
  }
  return text +
         fmt::format("[[links]]\na = \"m*.bus\"\nb = \"ethernet\"\neffective_rate = \"{}\"\n{}",
                     rate, guessed);
}

/// All pipelines of a space, by simulation. The space is that of the search: any blocks, shapes and
/// order of stages.
class AllPipelines {
 public:
  AllPipelines(const StrategyInput& input, const std::vector<DeviceClass>& classes,
               StageCosts& costs)
      : input_(input),
        classes_(classes),
        costs_(costs),
        shapes_(stage_shapes(input, classes, costs, *input.micro_batches,
                             strategies::mixed::Detail::all)) {
    for (const DeviceClass& one : classes) free_.push_back(one.size());
  }
  double least() {
    visit(0);
    return least_;
  }
  [[nodiscard]] std::size_t count() const { return count_; }

 private:
  void visit(std::size_t begin) {
    if (begin == costs_.blocks()) {
      const auto stages = static_cast<std::int32_t>(stages_.size());
      if (input_.pipeline_parallel.value_or(stages) == stages) price();
      return;
    }
    for (const StageShape& shape : shapes_) {
      const bool room = std::all_of(
          shape.members.begin(), shape.members.end(),
          [&](const Member& member) { return member.devices() <= free_[member.of_class]; });
      if (!room) continue;
      for (const Member& member : shape.members) free_[member.of_class] -= member.devices();
      stages_.push_back({begin, &shape});
      for (std::size_t end = begin + 1; end <= costs_.blocks(); ++end) visit(end);
      stages_.pop_back();
      for (const Member& member : shape.members) free_[member.of_class] += member.devices();
    }
  }
  void price() {
    Placement placement(classes_);
    Layout layout;
    for (const auto& [begin, shape] : stages_) {
      auto& stage = layout.stages.emplace_back();
      stage.first = costs_.first_layers()[begin];
      for (const Member& member : shape->members) {
        const auto groups = placement.take(member.of_class, member.tensor, member.count);
        if (!groups) return;
        stage.groups.insert(stage.groups.end(), groups->begin(), groups->end());
        stage.samples.insert(stage.samples.end(), member.samples.begin(), member.samples.end());
      }
    }
    ++count_;
    const Plan plan = plan_layout(input_, layout);
    if (!fits(input_, plan)) return;
    const double step = simulated_price(input_, plan).step.count();
    least_ = std::min(least_, step);
  }

  const StrategyInput& input_;
  const std::vector<DeviceClass>& classes_;
  StageCosts& costs_;
  std::vector<StageShape> shapes_;
  std::vector<std::size_t> free_;
  std::vector<std::pair<std::size_t, const StageShape*>> stages_;
  double least_ = std::numeric_limits<double>::infinity();
  std::size_t count_ = 0;
};

/// Compares the search with all pipelines, for a number of micro-batches that is given: the factor
/// by which its plan is slower, and how many pipelines there are.
std::pair<double, std::size_t> against_all(const World& world, std::int64_t batch,
                                           std::int32_t micro_batches,
                                           const strategies::StrategyOptions& degrees = {}) {
  StrategyInput input = world.simulated(batch);
  input.tensor_parallel = degrees.tensor_parallel;
  input.pipeline_parallel = degrees.pipeline_parallel;
  input.data_parallel = degrees.data_parallel;
  input.micro_batches = micro_batches;
  input.optimizer = Optimizer::adam;
  input.headroom.share = 0.06;
  const std::vector<DeviceClass> classes = strategies::mixed::device_classes(input, 4);
  StageCosts costs(input, classes);
  AllPipelines all(input, classes, costs);
  const double least = all.least();
  lowering::Estimator estimator(input.step());
  const std::vector<Plan> plans =
      strategies::mixed_plans(input, estimator, 1, strategies::mixed_stages(input));
  REQUIRE(plans.size() == 1);
  CHECK(fits(input, plans[0]));
  return {strategies::simulated_price(input, plans[0]).step.count() / least, all.count()};
}

}  // namespace

TEST_CASE("mixed stages: within one per cent of all pipelines of small instances") {
  const bool longer = long_tests();
  const std::vector<std::string> models{"a100-sxm4-40", "v100-sxm2", "t4", "rtx-3090", "titan-rtx"};
  std::mt19937 random(7);
  const auto draw = [&](int from, int to) {
    return from + static_cast<int>(random() % static_cast<unsigned>(to - from + 1));
  };
  double worst = 1;
  std::size_t pipelines = 0;
  const int instances = longer ? 24 : 3;
  for (int n = 0; n < instances; ++n) {
    std::vector<std::string> chosen = models;
    std::shuffle(chosen.begin(), chosen.end(), random);
    chosen.resize(3);
    std::vector<int> counts{1, 1, draw(1, longer ? 3 : 2)};
    if (longer) counts[1] = draw(1, 2);
    const int blocks = draw(3, longer ? 5 : 4), hidden = 256 << draw(0, 2);
    const std::string rate = std::vector<std::string>{"1 Gbit/s", "10 Gbit/s", "100 Gbit/s"}.at(
        static_cast<std::size_t>(draw(0, 2)));
    const World world(fmt::format("gpt:layers={},hidden={},heads=8,seq_length=256,vocab_size=4096",
                                  blocks, hidden),
                      topologies::parse_cluster(machines(chosen, counts, rate), "test.toml"));
    const std::int32_t micro_batches = 1 << draw(1, 3);
    CAPTURE(chosen);
    CAPTURE(counts);
    CAPTURE(rate);
    CAPTURE(world.network.name);
    CAPTURE(micro_batches);
    const auto [factor, count] = against_all(world, 4 * micro_batches, micro_batches);
    CHECK(factor <= 1.01);
    worst = std::max(worst, factor);
    pipelines += count;
  }
  MESSAGE(fmt::format("{} instances, {} pipelines, at worst {:.2f} % slower", instances, pipelines,
                      100 * (worst - 1)));
}

TEST_CASE("mixed stages: of given degrees within one per cent of all pipelines") {
  const World world("gpt:layers=4,hidden=512,heads=8,seq_length=256,vocab_size=4096",
                    topologies::parse_cluster(machines({"a100-sxm4-40", "t4"}, {2, 2}, "10 Gbit/s"),
                                              "test.toml"));
  std::vector<strategies::StrategyOptions> asked(4);
  asked[0].pipeline_parallel = 3;
  asked[1].tensor_parallel = 2;
  asked[2].data_parallel = 2;
  asked[3].pipeline_parallel = asked[3].data_parallel = 2;
  for (const strategies::StrategyOptions& degrees : asked) {
    const auto [factor, count] = against_all(world, 16, 4, degrees);
    CHECK(count > 0);
    CHECK(factor <= 1.01);
  }
}

TEST_CASE("mixed stages: plans compute what the unsplit network computes") {
  Network network = networks::load_network(
      "gpt:layers=3,hidden=8,heads=4,seq_length=3,vocab_size=6,ffn_hidden=12", {}, "test");
  network.layers.pop_back();  // a loss of the first word, which the interpreter can compute
  const LayerId first =
      add_layer(network, "first", Slicing{0, 0, 1, 1}, {LayerId{network.layers.size() - 1}});
  add_layer(network, "loss", Loss{}, {add_layer(network, "vector", Flatten{}, {first})});
  const World world(
      std::move(network),
      topologies::parse_cluster(machines({"v100-sxm2", "t4"}, {3, 2}, "10 Gbit/s"), "test.toml"));
  StrategyInput input = world.input(8);
  input.micro_batches = 2;
  std::set<std::size_t> numbers_of_stages;
  std::uint64_t seed = 1;
  for (const strategies::MixedStages& mixed : strategies::mixed_stages(input, 16)) {
    CAPTURE(seed);
    const Plan plan = strategies::plan_layout(input, mixed.layout);
    validate(plan, world.network, world.cluster, "test");
    CHECK(difference(plan, lowering::lower(world.network, world.cluster, plan), seed++) == "");
    numbers_of_stages.insert(mixed.layout.stages.size());
  }
  CHECK(numbers_of_stages.size() > 1);
}

TEST_CASE("mixed stages: a search that would take too many steps is given up") {
  const World world(
      "gpt:layers=6,hidden=256,heads=8,seq_length=256,vocab_size=4096",
      topologies::parse_cluster(machines({"v100-sxm2", "t4"}, {4, 3}, "10 Gbit/s"), "test.toml"));
  StrategyInput input = world.input(8);
  const auto classes = strategies::mixed::device_classes(input, 4);
  StageCosts costs(input, classes);
  using strategies::mixed::Detail;
  const auto search = [&](Detail detail, std::int64_t& steps) {
    const auto shapes = stage_shapes(input, classes, costs, 4, detail);
    return best_pipelines(input, classes, costs, shapes, 4, 1,
                          std::numeric_limits<double>::infinity(), detail, steps);
  };
  constexpr std::int64_t many = 1'000'000'000;
  std::int64_t left = many, left_coarse = many;
  const auto best = search(Detail::all, left), coarse = search(Detail::coarse, left_coarse);
  REQUIRE(best);
  REQUIRE(coarse);
  CHECK(best->front().step <= coarse->front().step);
  CHECK(many - left_coarse < many - left);
  std::int64_t enough = many - left + 1, too_few = many - left - 1;
  CHECK(search(Detail::all, enough)->front().step == best->front().step);
  CHECK(!search(Detail::all, too_few));
}

TEST_CASE("mixed stages: the search counts memory as plans do, within five per cent") {
  const World world(
      "gpt:layers=9,hidden=512,heads=8,seq_length=512,vocab_size=4096",
      topologies::parse_cluster(machines({"v100-sxm2", "t4"}, {4, 3}, "10 Gbit/s"), "test.toml"));
  StrategyInput input = world.input(64);
  input.micro_batches = 16;
  input.optimizer = Optimizer::adam;
  const auto classes = strategies::mixed::device_classes(input, 4);
  StageCosts costs(input, classes);
  const std::vector<StageShape> shapes{
      {{{1, 1, 2, {2, 2}}}}, {{{0, 4, 1, {4}}}}, {{{1, 1, 1, {4}}}}};
  const std::vector<std::size_t> blocks{0, 2, 7, 9};
  Layout layout;
  Placement placement(classes);
  for (std::size_t s = 0; s < shapes.size(); ++s) {
    const Member& member = shapes[s].members[0];
    layout.stages.push_back({costs.first_layers()[blocks[s]],
                             *placement.take(member.of_class, member.tensor, member.count),
                             member.samples});
  }
  const Plan plan = strategies::plan_layout(input, layout);
  const auto uses = lowering::memory_use(world.network, world.cluster, plan);
  for (std::size_t s = 0; s < shapes.size(); ++s) {
    CAPTURE(s);
    const auto need =
        costs.need(shapes[s], shapes[s].members[0], blocks[s], blocks[s + 1], *input.micro_batches);
    const double in_flight = static_cast<double>(shapes.size() - s);
    const auto used =
        static_cast<double>(uses[layout.stages[s].groups[0][0].index()].total().value);
    CHECK(need.once + need.each * in_flight == testing::approx(used).epsilon(0.05));
  }
}

TEST_CASE("mixed stages: a line for each stage says why it is as it is") {
  const World world(
      "gpt:layers=6,hidden=512,heads=8,seq_length=256,vocab_size=4096",
      topologies::parse_cluster(machines({"v100-sxm2", "t4"}, {2, 2}, "100 Gbit/s"), "test.toml"));
  StrategyInput input = world.input(32);
  input.micro_batches = 8;
  lowering::Estimator estimator(input.step());
  const std::vector<Plan> plans =
      strategies::mixed_plans(input, estimator, 1, strategies::mixed_stages(input));
  REQUIRE(plans.size() == 1);
  const auto count_stages = [](const std::vector<std::string>& lines) {
    std::size_t count = 0;
    for (const std::string& line : lines) {
      count += line.starts_with(fmt::format("stage {}: block", count)) ? 1 : 0;
    }
    return count;
  };
  CHECK(count_stages(strategies::stage_reasons(input, plans[0])) ==
        plans[0].schedule.rank_lists.size());
  input.context_parallel = 1;  // no stages were searched
  CHECK(strategies::stage_reasons(input, plans[0]).empty());
}

TEST_CASE("mixed stages: reasons are those of the plan, its ZeRO and its order") {
  const World world(
      "gpt:layers=6,hidden=512,heads=8,seq_length=256,vocab_size=4096",
      topologies::parse_cluster(machines({"v100-sxm2", "t4"}, {2, 1}, "100 Gbit/s"), "test.toml"));
  StrategyInput input = world.input(64);
  input.micro_batches = 8;
  input.optimizer = Optimizer::adam;
  const std::vector<std::size_t> first = strategies::first_layers_of_blocks(world.network);
  const Layout layout{
      {{0, {{DeviceId{0}}, {DeviceId{1}}}, {4, 4}}, {first[4], {{DeviceId{2}}}, {8}}}};
  for (const auto schedule :
       {strategies::PipelineSchedule::one_f_one_b, strategies::PipelineSchedule::zero_bubble}) {
    for (const std::int32_t zero : {0, 1}) {
      StrategyInput asked = input;
      asked.schedule = schedule;
      asked.zero_stage = zero;
      const Plan plan =
          strategies::with_memory_options(asked, strategies::plan_layout(asked, layout));
      const std::vector<std::string> lines = strategies::stage_reasons(input, plan);
      REQUIRE(lines.size() == 2);
      CAPTURE(lines[0]);
      CAPTURE(lines[1]);
      CHECK(lines[0].starts_with("stage 0: blocks 0-3 on 2 v100-sxm2, tp 1 x dp 2: "));
      CHECK(lines[1].starts_with("stage 1: blocks 4-5 on 1 t4, tp 1 x dp 1: "));
      const auto uses = lowering::memory_use(world.network, world.cluster, plan);
      for (const std::size_t s : {0u, 1u}) {
        const auto at = lines[s].find(": ", lines[s].find("tp ")) + 2;
        const Bytes said = parse_bytes(lines[s].substr(at, lines[s].find(" of ", at) - at), "test");
        const auto used =
            static_cast<double>(uses[layout.stages[s].groups[0][0].index()].total().value);
        CHECK(static_cast<double>(said.value) == testing::approx(used).epsilon(0.06));
      }
    }
  }
}

TEST_CASE("mixed stages: equal devices and networks without blocks have none") {
  const World equal("gpt:layers=2,hidden=64,heads=8,seq_length=32,vocab_size=96",
                    "nvswitch:4,device=v100-sxm2,rate=130GB/s");
  CHECK_FALSE(strategies::has_mixed_stages(equal.input(8)));
  const Cluster mixed =
      topologies::parse_cluster(machines({"v100-sxm2", "t4"}, {2, 2}, "10 Gbit/s"), "test.toml");
  CHECK(strategies::has_mixed_stages(World(equal.network, mixed).input(8)));
  CHECK_FALSE(strategies::has_mixed_stages(World("lenet5", mixed).input(8)));
}

}  // namespace parsim::testing
