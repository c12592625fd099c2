#include "strategies/idle_devices.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "lowering/estimate.hpp"
#include "strategies/blocks.hpp"
#include "strategies/mixed/reasons.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/price.hpp"

namespace parsim::strategies {

namespace {

/// The plan's stages and one more, of a block that is taken from its neighbour, before stage `at`.
/// Nothing if the neighbour has no block to spare.
std::optional<Layout> with_stage(Layout layout, const std::vector<std::size_t>& first_layers,
                                 LayoutStage stage, std::size_t at) {
  const auto block = [&](std::size_t s) {
    return s == layout.stages.size()
               ? first_layers.size()
               : static_cast<std::size_t>(std::lower_bound(first_layers.begin(), first_layers.end(),
                                                           layout.stages[s].first) -
                                          first_layers.begin());
  };
  const bool last = at == layout.stages.size();
  const std::size_t neighbour = last ? at - 1 : at;
  if (block(neighbour + 1) - block(neighbour) < 2) return std::nullopt;
  stage.first = last ? first_layers.back() : layout.stages[at].first;
  if (!last) layout.stages[at].first = first_layers[block(at) + 1];
  layout.stages.insert(layout.stages.begin() + static_cast<std::ptrdiff_t>(at), std::move(stage));
  return layout;
}

/// "with a stage of a block on 8 of them 4.35 s instead of 4.2 s, by estimate"; empty if no such
/// plan can be made or fits, or if it takes long to price them.
std::string priced(const StrategyInput& input, const Plan& plan, const Layout& layout,
                   const mixed::StageCosts& costs, const mixed::Member& member,
                   const mixed::DeviceClass& of, const std::set<DeviceId>& idle) {
  constexpr std::size_t most_work = 2'000'000;  // layers x devices x micro-batches
  LayoutStage stage;
  stage.samples = member.samples;
  for (const std::vector<DeviceId>& machine : of.machines) {
    std::vector<DeviceId> group;
    for (const DeviceId device : machine) {
      if (!idle.contains(device) || stage.groups.size() == member.count) continue;
      group.push_back(device);
      if (group.size() < member.tensor) continue;
      stage.groups.push_back(std::exchange(group, {}));
    }
  }
  std::size_t each = 0;
  for (const LayerPlan& layer : plan.layers) each += layer.devices.size();
  each *= static_cast<std::size_t>(plan.schedule.micro_batches);
  const bool many = each * (layout.stages.size() + 1) > most_work;
  if (stage.groups.size() < member.count || many) return {};
  StrategyInput fixed = input;
  fixed.micro_batches = plan.schedule.micro_batches;
  lowering::Estimator estimator(input.step());
  std::optional<Seconds> least;
  for (std::size_t at = 0; at <= layout.stages.size(); ++at) {
    const auto other = with_stage(layout, costs.first_layers(), stage, at);
    if (!other) continue;
    try {
      const Plan with = with_memory_options(fixed, plan_layout(fixed, *other));
      if (overcommit(fixed, with) > 0) continue;
      const Seconds step = estimated_step(estimator, with);
      if (!least || step < *least) least = step;
    } catch (const InputError&) {  // no plan of such groups
    }
  }
  if (!least) return {};
  const Seconds own = estimated_step(estimator, plan);
  return fmt::format("{}with a stage of a block on {} of them {} instead of {}, by estimate",
                     *least < own ? "the plan may not be the best: " : "", member.devices(),
                     to_text(*least), to_text(own));
}

/// Of the classes that have idle devices of one type, the last: as mixed::idle_class, or the price
/// of a plan with a stage on them. Empty if the plan's stages are no runs of blocks.
std::string reason_of(const StrategyInput& input, const Plan& plan,
                      const std::set<DeviceId>& idle) {
  constexpr std::size_t most_kinds = 6, most_devices = 1024;
  if (first_layers_of_blocks(input.network).size() < 2) return {};
  if (workers(input).size() > most_devices || input.virtual_pipeline > 1) return {};
  const std::vector<mixed::DeviceClass> classes = mixed::device_classes(input, most_kinds);
  const std::optional<Layout> layout = mixed::layout_of_plan(input, classes, plan);
  if (!layout) return {};
  mixed::StageCosts costs(input, classes);
  std::string reason;
  for (std::size_t c = 0; c < classes.size(); ++c) {
    std::size_t free = 0;
    for (const std::vector<DeviceId>& machine : classes[c].machines) {
      free += static_cast<std::size_t>(std::count_if(
          machine.begin(), machine.end(), [&](DeviceId device) { return idle.contains(device); }));
    }
    if (free == 0) continue;
    const mixed::IdleClass one = mixed::idle_class(input, classes, costs, *layout, plan, c, free);
    if (one.reason.empty())
      return priced(input, plan, *layout, costs, one.fastest, classes[c], idle);
    reason = "because " + one.reason;
  }
  return reason;
}

}  // namespace

std::vector<std::string> idle_devices(const StrategyInput& input, const Plan& plan) {
  std::vector<bool> used(input.cluster.devices.size(), false);
  for (const LayerPlan& layer : plan.layers) {
    for (const DeviceId device : layer.devices) used[device.index()] = true;
  }
  std::map<std::int32_t, std::set<DeviceId>> idle;  // by model
  std::map<std::int32_t, std::size_t> all;
  for (const DeviceId device : workers(input)) {
    ++all[input.cluster[device].model];
    if (!used[device.index()]) idle[input.cluster[device].model].insert(device);
  }
  if (idle.empty()) return {};
  const StrategyInput own = mixed::as_planned_in(input, plan);
  std::vector<std::string> lines;
  for (const auto& [model, devices] : idle) {
    std::string reason = reason_of(own, plan, devices);
    if (reason.empty() && (plan.strategy == "best" || plan.strategy == "tensor")) {
      reason = "no faster plan with them was found";
    }
    lines.push_back(fmt::format("{}{} of {} {}{}{}", idle_line, devices.size(), all[model],
                                input.cluster.model(*devices.begin()).name,
                                reason.empty() ? "" : "; ", reason));
  }
  return lines;
}

}  // namespace parsim::strategies
