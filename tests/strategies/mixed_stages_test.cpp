// Stages that differ: the search against all pipelines of a space small enough to enumerate, what
// it leaves out, and that its plans compute what the unsplit network computes.
#include "strategies/mixed_stages.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <tuple>

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
/// order of stages. With a bound on their steps those are left out that cannot be below it: a stage
/// has its first micro-batch when all stages before have had it and sent it, and returns its last
/// gradient through them, and works on all of them, but has no more in flight than there are stages
/// from it on; links carry all of them. So are those whose estimate without waiting for links is
/// not below it.
class AllPipelines {
 public:
  AllPipelines(const StrategyInput& input, const std::vector<DeviceClass>& classes,
               StageCosts& costs, double below = std::numeric_limits<double>::infinity())
      : least_(below),
        pruned_(std::isfinite(below)),
        input_(input),
        classes_(classes),
        costs_(costs),
        alone_on_links_(input.step(), lowering::LinkSharing::ignored),
        shapes_(stage_shapes(input, classes, costs, *input.micro_batches,
                             strategies::mixed::Detail::all)) {
    for (const DeviceClass& one : classes) free_.push_back(one.size());
    for (const StageShape& shape : shapes_) times_.push_back(costs.times(shape));
  }
  /// The least step below the bound, else the bound.
  double least() {
    visit(0, 0, 0);
    return least_;
  }
  [[nodiscard]] std::size_t count() const { return count_; }

 private:
  /// before   what a micro-batch takes in the stages so far; bound: what the step takes with them
  void visit(std::size_t begin, double before, double bound) {
    if (begin == costs_.blocks()) {
      const auto stages = static_cast<std::int32_t>(stages_.size());
      if (input_.pipeline_parallel.value_or(stages) == stages) price(bound);
      return;
    }
    for (std::size_t s = 0; s < shapes_.size(); ++s) {
      const StageShape& shape = shapes_[s];
      if (!take(shape)) continue;
      double arrived = before, sent = 0;
      if (pruned_ && !stages_.empty()) {
        const auto send = costs_.send(*stages_.back().second, shape, begin);
        arrived += 2 * send.time;
        sent = *input_.micro_batches * send.on_links;
      }
      stages_.push_back({begin, &shape});
      for (std::size_t end = begin + 1; end <= costs_.blocks(); ++end) {
        const double own = times_[s][begin * (costs_.blocks() + 1) + end];
        const double more = std::max({bound, sent, arrived + *input_.micro_batches * own});
        if (pruned_ && more >= beaten()) break;  // nor with more blocks
        if (pruned_ && arrived + own >= latest(end, s)) continue;
        visit(end, arrived + own, more);
      }
      stages_.pop_back();
      give_back(shape);
    }
  }
  /// What the step takes because a stage has only as many micro-batches in flight as there are
  /// stages from it on: they are there and back before others begin.
  double in_turn() {
    double behind = 0, more = 0;
    const std::int32_t m = *input_.micro_batches;
    for (std::size_t k = stages_.size(); k-- > 0;) {
      const auto& [begin, shape] = stages_[k];
      const std::size_t end = k + 1 < stages_.size() ? stages_[k + 1].first : costs_.blocks();
      const std::vector<double>& times = times_[static_cast<std::size_t>(shape - shapes_.data())];
      behind += times[begin * (costs_.blocks() + 1) + end];
      if (k + 1 < stages_.size())
        behind += 2 * costs_.send(*shape, *stages_[k + 1].second, end).time;
      const auto in_flight = static_cast<std::int32_t>(stages_.size() - k);
      more = std::max(more, ((m + in_flight - 1) / in_flight - 1) * behind);
    }
    return behind + more;
  }
  /// When a micro-batch must have left a stage of that shape and come back, so that stages on the
  /// free devices can have the blocks from there on in a step below the bound.
  double latest(std::size_t begin, std::size_t from) {
    if (begin == costs_.blocks()) return std::numeric_limits<double>::infinity();
    if (beaten() != latest_for_) latest_.clear();
    latest_for_ = beaten();
    const auto [known, added] = latest_.try_emplace({begin, from, free_}, -1);
    if (!added) return known->second;
    double date = -1;
    for (std::size_t s = 0; s < shapes_.size(); ++s) {
      if (!take(shapes_[s])) continue;
      const auto send = costs_.send(shapes_[from], shapes_[s], begin);
      for (std::size_t end = begin + 1; end <= costs_.blocks(); ++end) {
        if (*input_.micro_batches * send.on_links >= beaten()) break;
        const double own = times_[s][begin * (costs_.blocks() + 1) + end];
        const double alone = beaten() - *input_.micro_batches * own;
        if (alone - 2 * send.time <= date) break;
        date = std::max(date, std::min(alone, latest(end, s) - own) - 2 * send.time);
      }
      give_back(shapes_[s]);
    }
    return latest_[{begin, from, free_}] = date;
  }
  bool take(const StageShape& shape) {
    const bool room = std::all_of(
        shape.members.begin(), shape.members.end(),
        [&](const Member& member) { return member.devices() <= free_[member.of_class]; });
    for (const Member& member : shape.members) {
      if (room) free_[member.of_class] -= member.devices();
    }
    return room;
  }
  void give_back(const StageShape& shape) {
    for (const Member& member : shape.members) free_[member.of_class] += member.devices();
  }
  void price(double bound) {
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
    if (pruned_) bound = std::max(bound, in_turn());
    if (pruned_ && bound >= beaten()) return;
    ++count_;
    const Plan plan = plan_layout(input_, layout);
    if (pruned_ && alone_on_links_.step_time(plan, Seconds{least_}).count() >= least_) return;
    if (!fits(input_, plan)) return;
    const double step = simulated_price(input_, plan).step.count();
    if (pruned_) CHECK(step >= bound / slack);
    least_ = std::min(least_, step);
  }

  /// A send takes as long as the cost model says of one alone; some are a little faster in a step.
  static constexpr double slack = 1.02;
  /// Bounds above this cannot be of the least step.
  [[nodiscard]] double beaten() const { return slack * least_; }

  double least_;
  bool pruned_;
  const StrategyInput& input_;
  const std::vector<DeviceClass>& classes_;
  StageCosts& costs_;
  lowering::Estimator alone_on_links_;  ///< each message as if it had the links to itself
  std::vector<StageShape> shapes_;
  std::vector<std::vector<double>> times_;  ///< by shape, as StageCosts::times
  /// By first block, shape of the stage before, free devices.
  std::map<std::tuple<std::size_t, std::size_t, std::vector<std::size_t>>, double> latest_;
  double latest_for_ = 0;  ///< the bound of these
  std::vector<std::size_t> free_;
  std::vector<std::pair<std::size_t, const StageShape*>> stages_;
  std::size_t count_ = 0;
};

/// Compares the search with all pipelines, for a number of micro-batches that is given: the factor
/// by which its plan is slower, and how many pipelines there are.
std::pair<double, std::size_t> against_all(const World& world, std::int64_t batch,
                                           std::int32_t micro_batches,
                                           const strategies::StrategyOptions& degrees = {},
                                           bool pruned = false) {
  StrategyInput input = world.simulated(batch);
  input.tensor_parallel = degrees.tensor_parallel;
  input.pipeline_parallel = degrees.pipeline_parallel;
  input.data_parallel = degrees.data_parallel;
  input.schedule = degrees.schedule;
  input.micro_batches = micro_batches;
  input.optimizer = Optimizer::adam;
  input.headroom.share = 0.06;
  const std::vector<DeviceClass> classes = strategies::mixed::device_classes(input, 4);
  lowering::Estimator estimator(input.step());
  const std::vector<Plan> plans =
      strategies::mixed_plans(input, estimator, 1, strategies::mixed_stages(input));
  REQUIRE(plans.size() == 1);
  CHECK(fits(input, plans[0]));
  const double found = strategies::simulated_price(input, plans[0]).step.count();
  StageCosts costs(input, classes);
  AllPipelines all(input, classes, costs,
                   pruned ? found / 1.01 : std::numeric_limits<double>::infinity());
  const double least = all.least();
  return {found / least, all.count()};
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

TEST_CASE("mixed stages: within one per cent of all pipelines of three types, eight blocks") {
  if (!long_tests()) return;
  std::mt19937 random(11);
  const auto draw = [&](int from, int to) {
    return from + static_cast<int>(random() % static_cast<unsigned>(to - from + 1));
  };
  std::size_t pipelines = 0;
  constexpr int instances = 6;
  for (int n = 0; n < instances; ++n) {
    std::vector<std::string> chosen{"a100-sxm4-40", "v100-sxm2", "t4", "rtx-3090", "titan-rtx"};
    std::shuffle(chosen.begin(), chosen.end(), random);
    chosen.resize(3);
    std::vector<int> counts = n < 2 ? std::vector{2, 2, 1} : std::vector{3, 3, 2};
    std::shuffle(counts.begin(), counts.end(), random);
    const std::string rate = std::vector<std::string>{"1 Gbit/s", "10 Gbit/s", "100 Gbit/s"}.at(
        static_cast<std::size_t>(draw(0, 2)));
    const World world(fmt::format("gpt:layers=8,hidden={},heads=8,seq_length=256,vocab_size=4096",
                                  256 << draw(0, 2)),
                      topologies::parse_cluster(machines(chosen, counts, rate), "test.toml"));
    const std::int32_t micro_batches = 1 << draw(1, 3);
    CAPTURE(chosen);
    CAPTURE(counts);
    CAPTURE(rate);
    CAPTURE(world.network.name);
    CAPTURE(micro_batches);
    const auto [factor, count] = against_all(world, 4 * micro_batches, micro_batches, {}, true);
    CHECK(factor <= 1.01 + 1e-9);  // none is below what was found less 1 %
    pipelines += count;
  }
  MESSAGE(fmt::format("{} instances, {} pipelines simulated", instances, pipelines));
}

TEST_CASE("mixed stages: of eight devices some come first and last, their like in between not") {
  const World world(
      "gpt:layers=8,hidden=1024,heads=8,seq_length=256,vocab_size=4096",
      topologies::parse_cluster(machines({"titan-rtx", "v100-sxm2", "t4"}, {3, 3, 2}, "10 Gbit/s"),
                                "test.toml"));
  StrategyInput input = world.simulated(32);
  input.micro_batches = 8;
  input.optimizer = Optimizer::adam;
  lowering::Estimator estimator(input.step());
  const std::vector<Plan> plans =
      strategies::mixed_plans(input, estimator, 1, strategies::mixed_stages(input));
  REQUIRE(plans.size() == 1);
  // The best of all, by the enumeration above.
  const std::vector<std::size_t> first = strategies::first_layers_of_blocks(world.network);
  const auto d = [](std::size_t device) { return std::vector{DeviceId{device}}; };
  const Layout best{{{0, {d(0)}, {}},
                     {first[1], {d(3), d(4)}, {}},
                     {first[4], {d(5)}, {}},
                     {first[5], {d(1), d(2)}, {}}},
                    1};
  const double step = simulated_price(input, plan_layout(input, best)).step.count();
  CHECK(simulated_price(input, plans[0]).step.count() <= 1.01 * step);
}

TEST_CASE("mixed stages: of ZB-H1 and ZB-H2, too, within one per cent of all pipelines") {
  strategies::StrategyOptions options;
  options.schedule = PipelineSchedule::zero_bubble;
  for (const auto& models : {std::vector<std::string>{"a100-sxm4-40", "v100-sxm2"},
                             std::vector<std::string>{"rtx-3090", "t4"}}) {
    const World world(
        "gpt:layers=5,hidden=1024,heads=8,seq_length=256,vocab_size=4096",
        topologies::parse_cluster(machines(models, {2, 2}, "10 Gbit/s"), "test.toml"));
    const auto [factor, count] = against_all(world, 16, 8, options);
    CAPTURE(count);
    CHECK(factor <= 1.01);
    options.schedule = PipelineSchedule::zero_bubble_h2;
  }
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

TEST_CASE("mixed stages: unlike devices share layers by speed where that beats a pipeline") {
  // One sample on a fast link: a pipeline has one device waiting for the other.
  const World world("gpt:layers=4,hidden=2048,heads=16,seq_length=1024,vocab_size=4096",
                    star_of({test_device("fast", "30 TFLOP/s"), test_device("slow", "10 TFLOP/s")},
                            "300 GB/s", "1us"));
  StrategyInput input = world.simulated(1);
  REQUIRE(strategies::has_mixed_stages(input));
  lowering::Estimator estimator(input.step());
  const std::vector<Plan> plans =
      strategies::mixed_plans(input, estimator, 1, strategies::mixed_stages(input));
  REQUIRE(plans.size() == 1);
  const double found = strategies::simulated_price(input, plans[0]).step.count();
  // All shares of the 16 heads, by simulation.
  double least = std::numeric_limits<double>::infinity(), equal = least;
  for (std::int64_t fast = 1; fast < 16; ++fast) {
    const Layout layout{{{0, {{DeviceId{0}, DeviceId{1}}}, {}, {{fast, 16 - fast}}}}, 1};
    const double step = simulated_price(input, plan_layout(input, layout)).step.count();
    least = std::min(least, step);
    if (fast == 8) equal = step;
  }
  CHECK(found <= 1.01 * least);
  CHECK(found < 0.8 * equal);
  REQUIRE(!plans[0].notes.empty());
  CHECK(plans[0].notes.back().find(": 1x(1 slow and 1 fast sharing layers 4:12)") !=
        std::string::npos);
}

TEST_CASE("mixed stages: tensor leaves out plans that are not accepted") {
  const World world("gpt:layers=6,hidden=1024,heads=8,seq_length=256,vocab_size=4096",
                    topologies::parse_cluster(machines({"a100-sxm4-40", "t4"}, {1, 3}, "10 Gbit/s"),
                                              "test.toml"));
  StrategyInput input = world.simulated(16);
  const auto stages = [](const Plan& plan) { return plan.schedule.rank_lists.size(); };
  const auto plan = [&] { return strategies::strategy("tensor", "test").plan(input); };
  const std::size_t free = stages(plan());
  input.accepts = [&](const Plan& one) { return stages(one) != free; };
  CHECK(stages(plan()) != free);
  // Of stages of one device each, all of them much slower.
  input.accepts = [&](const Plan& one) {
    const auto& ranks = one.schedule.rank_lists;
    return stages(one) == 4 && std::all_of(ranks.begin(), ranks.end(), [](const RankList& list) {
             return list.devices.size() == 1;
           });
  };
  CHECK(input.accepts(plan()));
  input.accepts = [](const Plan&) { return false; };  // none is: as if all were
  CHECK(stages(plan()) == free);
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

TEST_CASE("mixed stages: a search that would take too many steps stops with what it has") {
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
  CHECK(best.front().step <= coarse.front().step);
  CHECK(many - left_coarse < many - left);
  std::int64_t enough = many - left + 1, too_few = many - left - 1;
  CHECK(search(Detail::all, enough).front().step == best.front().step);
  CHECK(enough > 0);
  CHECK(search(Detail::all, too_few).front().step == best.front().step);  // longer periods
  CHECK(too_few <= 0);
  std::int64_t none = 1;
  CHECK(search(Detail::all, none).empty());
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
  for (const Framework framework : {Framework::pytorch, Framework::megatron}) {
    CAPTURE(to_text(framework));
    input.framework = framework;
    StageCosts counted(input, classes);
    const Plan plan = strategies::plan_layout(input, layout);
    const auto uses = lowering::memory_use(world.network, world.cluster, plan);
    for (std::size_t s = 0; s < shapes.size(); ++s) {
      CAPTURE(s);
      const auto need = counted.need(shapes[s], shapes[s].members[0], blocks[s], blocks[s + 1],
                                     *input.micro_batches);
      const double in_flight = static_cast<double>(shapes.size() - s);
      const lowering::MemoryUse& use = uses[layout.stages[s].groups[0][0].index()];
      CHECK(need.once + need.each * in_flight ==
            testing::approx(static_cast<double>(use.total().value)).epsilon(0.05));
    }
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
