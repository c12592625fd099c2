#include "strategies/mixed_stages.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "strategies/blocks.hpp"
#include "strategies/mixed/candidates.hpp"
#include "strategies/mixed/even_starts.hpp"
#include "strategies/mixed/improve.hpp"
#include "strategies/mixed/layouts.hpp"
#include "strategies/mixed/rearrange.hpp"
#include "strategies/mixed/reasons.hpp"
#include "strategies/mixed/search.hpp"
#include "strategies/mixed/vary.hpp"
#include "strategies/out_of_time.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/price.hpp"

namespace parsim::strategies {

namespace {

using mixed::DeviceClass;

constexpr std::size_t most_kinds = 4;
constexpr std::size_t most_devices_of_kind = 1000;  // they are counted in ten bits
/// So many pipelines are rearranged, if they are not that much slower than the best.
constexpr std::size_t most_rearranged = 12, most_even = 4;
constexpr double worth_rearranging = 1.1;
/// Steps of the programme without all detail for a number of micro-batches, some tens of
/// milliseconds: it is one start among others.
constexpr std::int64_t most_coarse_steps = 1'000'000;

/// Numbers of micro-batches: the batch by one sample, two, four and so on.
std::vector<std::int32_t> micro_batch_numbers(const StrategyInput& input) {
  if (input.micro_batches) return {*input.micro_batches};
  std::set<std::int32_t> numbers;
  for (std::int64_t samples = 1; samples <= input.batch; samples *= 2) {
    std::int64_t number = input.batch / samples;
    while (input.batch % number != 0) --number;
    if (number <= most_micro_batches) numbers.insert(static_cast<std::int32_t>(number));
  }
  return {numbers.rbegin(), numbers.rend()};
}

/// How much longer than the best a step may be by the closed form to be worth more than that. On
/// small clusters, often with slow links, there is time to look at more.
double how_near(const StrategyInput& input) {
  return workers(input).size() <= mixed::few_devices ? 1.5 : 1.2;
}

mixed::ShapedPipeline shaped(const std::vector<mixed::StageShape>& shapes,
                             const mixed::Pipeline& pipeline) {
  mixed::ShapedPipeline result;
  for (const mixed::Stage& stage : pipeline.stages) {
    result.shapes.push_back(shapes[stage.shape]);
    result.first_block.push_back(stage.first_block);
  }
  result.step = pipeline.step;
  return result;
}

}  // namespace

bool has_mixed_stages(const StrategyInput& input) {
  const bool others_given = input.expert_parallel || input.expert_tensor_parallel ||
                            input.context_parallel || input.virtual_pipeline > 1;
  if (others_given || first_layers_of_blocks(input.network).size() < 2) return false;
  // Of each pair of machines it is asked how long a message takes.
  if (workers(input).size() > most_kinds * most_devices_of_kind) return false;
  const std::vector<DeviceClass> classes = mixed::device_classes(input, most_kinds);
  return classes.size() > 1 && classes.size() <= most_kinds &&
         std::all_of(classes.begin(), classes.end(),
                     [](const DeviceClass& one) { return one.size() <= most_devices_of_kind; });
}

namespace {

/// The layouts of mixed_stages by one closed form.
std::vector<MixedStages> stages_by_form(const StrategyInput& input, std::size_t count) {
  const std::vector<DeviceClass> classes = mixed::device_classes(input, most_kinds);
  mixed::StageCosts costs(input, classes);
  if (costs.blocks() == 0 || classes.size() > most_kinds) return {};
  const double near = how_near(input);
  double limit = std::numeric_limits<double>::infinity();
  std::vector<MixedStages> all;
  std::size_t devices = 0;
  for (const mixed::DeviceClass& one : classes) devices += one.size();
  const std::vector<std::int32_t> numbers = micro_batch_numbers(input);
  std::vector<std::pair<std::int32_t, mixed::ShapedPipeline>> starts;
  const auto take = [&](const mixed::ShapedPipeline& pipeline, std::int32_t number) {
    limit = std::min(limit, near * pipeline.step);
    auto layout = mixed::layout_of(classes, costs, pipeline);
    if (layout) all.push_back({std::move(*layout), number, pipeline.step, false});
  };
  std::map<std::int32_t, mixed::StageTable> tables;
  for (const std::int32_t number : numbers) {
    tables.try_emplace(number, input, classes, costs, number);
  }
  const auto best_of = [&](std::int32_t number, const std::vector<mixed::StageShape>& shapes,
                           std::size_t wanted, mixed::Detail detail, std::int64_t& steps) {
    std::vector<mixed::ShapedPipeline> found;
    for (const mixed::Pipeline& pipeline : mixed::best_pipelines(
             input, classes, costs, shapes, number, wanted, limit, detail, steps)) {
      const auto closer = tables.at(number).priced(shaped(shapes, pipeline), limit);
      if (!closer) continue;
      take(*closer, number);
      found.push_back(*closer);
    }
    return found;
  };
  for (const std::int32_t number : numbers) {
    const auto shapes = mixed::stage_shapes(input, classes, costs, number, mixed::Detail::coarse);
    std::int64_t steps = most_coarse_steps;
    const auto found = best_of(number, shapes, count, mixed::Detail::coarse, steps);
    const auto best = std::min_element(
        found.begin(), found.end(), [](const auto& a, const auto& b) { return a.step < b.step; });
    if (best != found.end()) starts.emplace_back(number, *best);
    for (mixed::ShapedPipeline& even : mixed::even_starts(input, classes, costs, tables.at(number),
                                                          most_even, worth_rearranging * limit)) {
      take(even, number);
      starts.emplace_back(number, std::move(even));
    }
  }
  std::stable_sort(starts.begin(), starts.end(),
                   [](const auto& a, const auto& b) { return a.second.step < b.second.step; });
  starts.resize(std::min(starts.size(), most_rearranged));
  for (const auto& [number, pipeline] : starts) {
    if (pipeline.step > limit / near * worth_rearranging) break;
    for (const mixed::ShapedPipeline& other :
         mixed::rearranged(input, classes, tables.at(number), pipeline, count, limit)) {
      take(other, number);
    }
  }
  if (devices <= mixed::few_devices) {
    std::int64_t steps = mixed::most_steps_in_detail;
    for (std::size_t n = 0; n < numbers.size(); ++n) {
      const auto share = steps / static_cast<std::int64_t>(numbers.size() - n);
      std::int64_t left = share;
      const auto shapes =
          mixed::stage_shapes(input, classes, costs, numbers[n], mixed::Detail::all);
      best_of(numbers[n], shapes, count, mixed::Detail::all, left);
      steps -= share - left;
    }
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const MixedStages& a, const MixedStages& b) { return a.step < b.step; });
  std::erase_if(all, [&](const MixedStages& one) { return one.step > limit; });
  // Found coarsely and in detail.
  std::vector<MixedStages> different;
  for (MixedStages& one : all) {
    const bool known =
        std::any_of(different.rbegin(), different.rend(), [&](const MixedStages& other) {
          return one.micro_batches == other.micro_batches && one.layout == other.layout;
        });
    if (!known) different.push_back(std::move(one));
  }
  return different;
}

}  // namespace

std::vector<MixedStages> mixed_stages(const StrategyInput& input, std::size_t count) {
  std::vector<MixedStages> all = stages_by_form(input, count);
  if (input.pipeline_sends == PipelineSends::overlapped) return all;
  for (MixedStages& one : all) one.waits = true;
  StrategyInput overlapped = input;
  overlapped.pipeline_sends = PipelineSends::overlapped;
  for (MixedStages& one : stages_by_form(overlapped, count)) {
    const bool known = std::any_of(all.begin(), all.end(), [&](const MixedStages& other) {
      return one.micro_batches == other.micro_batches && one.layout == other.layout;
    });
    if (!known) all.push_back(std::move(one));
  }
  return all;
}

std::vector<MixedStages> mixed_stages(const StrategyInput& input) {
  return mixed_stages(input, workers(input).size() <= mixed::few_devices ? 200 : 32);
}

Plan plan_of_stages(const StrategyInput& input, const MixedStages& mixed) {
  StrategyInput own = input;
  own.micro_batches = mixed.micro_batches;
  Plan plan = plan_layout(own, mixed.layout);
  plan.strategy = "tensor";
  plan.notes.push_back(mixed::stages_note(input, mixed.layout, mixed.micro_batches));
  return plan;
}

std::vector<Plan> mixed_plans(const StrategyInput& input, lowering::Estimator& estimator,
                              std::size_t count, std::vector<MixedStages> layouts) {
  std::vector<Plan> plans;
  for (const MixedStages& one : best_stages(input, estimator, count, std::move(layouts))) {
    plans.push_back(plan_of_stages(input, one));
  }
  return plans;
}

std::vector<MixedStages> best_stages(const StrategyInput& input, lowering::Estimator& estimator,
                                     std::size_t count, std::vector<MixedStages> layouts) {
  constexpr std::size_t fewest = 4, fewest_moved = 8;
  // Parts of the time: the rest is for moves, and of either for what may be the best.
  constexpr double for_layouts = 0.7, for_all = 0.15, worth_moving = 1.03;
  mixed::Pricing pricing(input, estimator);
  mixed::Candidates candidates(input.cluster, layouts);
  std::vector<mixed::Priced> priced;
  constexpr double unlimited = lowering::Estimator::unlimited.count();
  double least = unlimited;  // of those that fit
  for (bool all = true; auto mixed = candidates.next(all ? unlimited : least);) {
    mixed::Priced one{std::move(*mixed), {}, {}};
    one.plan = plan_of_stages(input, one.mixed);
    if (!mixed::is_accepted(input, one.plan)) continue;
    const bool enough = priced.size() >= fewest && pricing.used(one.plan) > for_layouts;
    if (enough && least < unlimited) break;
    const bool fits = overcommit(input, one.plan) == 0;
    if (!fits && (enough || least < unlimited)) continue;
    one.price = pricing.price(one.plan);
    candidates.learn(one.mixed, one.price.step.count());
    if (fits) least = std::min(least, one.price.step.count());
    all = priced.size() < count || pricing.used(one.plan) < for_all;
    priced.push_back(std::move(one));
  }
  if (priced.empty() && input.accepts) {  // none is: as if all were
    StrategyInput all = input;
    all.accepts = {};
    return best_stages(all, estimator, count, std::move(layouts));
  }
  const auto by_price = [&] {
    std::stable_sort(priced.begin(), priced.end(),
                     [](const mixed::Priced& a, const mixed::Priced& b) {
                       return a.price.better_than(b.price);
                     });
  };
  by_price();
  priced.resize(std::min(priced.size(), std::max(2 * count, fewest_moved)));
  for (mixed::Priced& one : priced) {
    const bool near = one.price.step < worth_moving * priced.front().price.step;
    if (!near && pricing.used(one.plan) > 2 * for_all) break;
    mixed::move_blocks(input, pricing, one);
    mixed::merge_stages(input, pricing, one);
  }
  by_price();
  std::vector<MixedStages> best;
  for (mixed::Priced& one : priced) {
    if (best.size() == count || (!best.empty() && !one.price.fits())) break;
    best.push_back(std::move(one.mixed));
  }
  return best;
}

std::optional<Plan> varied_stages(const StrategyInput& input, lowering::Estimator& estimator,
                                  const Plan& plan) {
  if (!input.simulate || plan.schedule.rank_lists.size() < 2 || !has_mixed_stages(input)) return {};
  const std::vector<DeviceClass> classes = mixed::device_classes(input, most_kinds);
  const std::optional<Layout> layout = mixed::layout_of_plan(input, classes, plan);
  if (!layout) return {};
  const StrategyInput own = mixed::as_planned_in(input, plan);
  mixed::Pricing pricing(own, estimator);
  mixed::Priced best{{*layout, plan.schedule.micro_batches, 0, false}, {}, {}};
  best.plan = plan_of_stages(own, best.mixed);
  constexpr double most_of_one = 1.0 / 32;  // of the time: fewer changes would not find much
  if (pricing.used(best.plan) > most_of_one) return {};
  const Price before = best.price = pricing.price(best.plan);
  try {
    mixed::vary_stages(own, classes, pricing, best);
  } catch (const OutOfTime&) {  // what was found so far
  }
  if (!best.price.better_than(before)) return {};
  return with_memory_options(own, best.plan);
}

std::vector<std::string> stage_reasons(const StrategyInput& input, const Plan& plan) {
  if (plan.schedule.rank_lists.size() < 2 || !has_mixed_stages(input)) return {};
  const std::vector<DeviceClass> classes = mixed::device_classes(input, most_kinds);
  const std::optional<Layout> layout = mixed::layout_of_plan(input, classes, plan);
  if (!layout) return {};
  const StrategyInput own = mixed::as_planned_in(input, plan);
  mixed::StageCosts costs(own, classes);
  return mixed::stage_reasons(own, classes, costs, *layout, plan);
}

}  // namespace parsim::strategies
