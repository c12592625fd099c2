#include "strategies/mixed/improve.hpp"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "lowering/gradient_flow.hpp"
#include "strategies/blocks.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/shares.hpp"
#include "strategies/stages.hpp"
#include "strategies/tensor/split.hpp"

namespace parsim::strategies::mixed {

namespace {

/// Layers x micro-batches x devices in a walk through the step.
std::size_t walked_cells(const Plan& plan) {
  std::size_t cells = 0;
  for (const LayerPlan& layer : plan.layers) cells += layer.devices.size();
  return cells * static_cast<std::size_t>(plan.schedule.micro_batches);
}

/// Shares by speed of devices that compute layers together, in units of a key/value head; nothing
/// if there are not enough of these, or a device would have none.
std::optional<tensor::DeviceUnits> units_by_speed(const StrategyInput& input,
                                                  const lowering::GradientFlow& flow,
                                                  std::size_t first, std::size_t end,
                                                  const std::vector<DeviceId>& devices,
                                                  std::int64_t samples) {
  std::int64_t heads = 0;
  for (const Layer& layer : input.network.layers) {
    const auto* attention = layer.kind.as<Attention>();
    if (attention == nullptr) continue;
    heads = std::gcd(heads, attention->key_heads);
  }
  if (heads < std::ssize(devices)) return std::nullopt;
  const std::vector<std::size_t> kinds = device_kinds(input.cluster, devices);
  std::vector<double> alone(devices.size());  // by kind, of all units
  for (std::size_t d = 0; d < devices.size(); ++d) {
    double& time = alone[kinds[d]];
    if (time > 0) continue;
    const LayerPlan plan{{}, {devices[d]}, {}, false, {}};
    for (std::size_t l = first; l < end; ++l) {
      const std::vector<Cell> whole = cells(input.network, LayerId{l}, plan, samples);
      if (whole.empty()) continue;
      time += layer_time(input, flow, LayerId{l}, whole[0].part, devices[d]).count();
    }
  }
  tensor::DeviceUnits units =
      finish_together(heads, kinds, [&](std::size_t kind, std::int64_t part) {
        return Seconds{alone[kind] * static_cast<double>(part) / static_cast<double>(heads)};
      });
  if (std::find(units.begin(), units.end(), 0) != units.end()) return std::nullopt;
  return units;
}

/// Stage s and the next one as a single stage, whose groups share its layers by speed; nothing if
/// their replicas do not match.
std::optional<Layout> merged(const StrategyInput& input, const lowering::GradientFlow& flow,
                             const MixedStages& mixed, std::size_t s) {
  Layout layout = mixed.layout;
  LayoutStage& stage = layout.stages[s];
  const LayoutStage& next = layout.stages[s + 1];
  if (stage.groups.size() != next.groups.size() || stage.samples != next.samples) {
    return std::nullopt;
  }
  const std::size_t end =
      s + 2 < layout.stages.size() ? layout.stages[s + 2].first : input.network.layers.size();
  const std::int64_t samples = input.batch / mixed.micro_batches;
  stage.parts.clear();
  for (std::size_t g = 0; g < stage.groups.size(); ++g) {
    stage.groups[g].insert(stage.groups[g].end(), next.groups[g].begin(), next.groups[g].end());
    const std::int64_t own = stage.samples.empty()
                                 ? std::max<std::int64_t>(1, samples / std::ssize(stage.groups))
                                 : stage.samples[g];
    auto units = units_by_speed(input, flow, stage.first, end, stage.groups[g], own);
    if (!units) return std::nullopt;
    stage.parts.push_back(std::move(*units));
  }
  layout.stages.erase(layout.stages.begin() + static_cast<std::ptrdiff_t>(s) + 1);
  return layout;
}

}  // namespace

std::optional<bool> take_better(const StrategyInput& input, Pricing& pricing, Priced other,
                                Priced& start) {
  other.plan = plan_of_stages(input, other.mixed);
  if (!is_accepted(input, other.plan)) return false;
  if (pricing.used(other.plan) > 1) return std::nullopt;
  if (overcommit(input, other.plan) > start.price.overcommit) return false;
  other.price = pricing.price(other.plan);
  if (!other.price.better_than(start.price)) return false;
  start = std::move(other);
  return true;
}

double Pricing::used(const Plan& plan) const {
  // Layouts by two closed forms are looked at.
  const double forms = input_.pipeline_sends == PipelineSends::blocking ? 2 : 1;
  return static_cast<double>(work_ + walked_cells(plan)) / (forms * most_work);
}

Price Pricing::price(const Plan& plan) {
  work_ += walked_cells(plan);
  return input_.simulate ? simulated_price(input_, plan)
                         : estimated_price(input_, estimator_, plan);
}

bool is_accepted(const StrategyInput& input, const Plan& plan) {
  return !input.accepts || input.accepts(with_memory_options(input, plan));
}

void move_blocks(const StrategyInput& input, Pricing& pricing, Priced& start) {
  const std::vector<std::size_t> first = first_layers_of_blocks(input.network);
  const auto block = [&](std::size_t layer) {
    return std::lower_bound(first.begin(), first.end(), layer) - first.begin();
  };
  for (bool moved = true; std::exchange(moved, false);) {
    for (std::size_t s = 1; s < start.mixed.layout.stages.size(); ++s) {
      for (const std::ptrdiff_t step : {-1, 1}) {
        const auto& stages = start.mixed.layout.stages;
        const std::ptrdiff_t to = block(stages[s].first) + step;
        const std::ptrdiff_t end = s + 1 < stages.size()
                                       ? block(stages[s + 1].first)
                                       : static_cast<std::ptrdiff_t>(first.size());
        if (to <= block(stages[s - 1].first) || to >= end) continue;
        Priced other{start.mixed, {}, {}};
        other.mixed.layout.stages[s].first = first[static_cast<std::size_t>(to)];
        const std::optional<bool> better = take_better(input, pricing, std::move(other), start);
        if (!better) return;
        moved = moved || *better;
      }
    }
  }
}

void merge_stages(const StrategyInput& input, Pricing& pricing, Priced& start) {
  if (input.tensor_parallel || input.pipeline_parallel || input.tensor_overlap) return;
  const lowering::GradientFlow flow = lowering::gradient_flow(input.network);
  for (bool joined = true; std::exchange(joined, false);) {
    for (std::size_t s = 0; s + 1 < start.mixed.layout.stages.size(); ++s) {
      std::optional<Layout> layout = merged(input, flow, start.mixed, s);
      if (!layout) continue;
      Priced other{
          {std::move(*layout), start.mixed.micro_batches, start.mixed.step, start.mixed.waits},
          {},
          {}};
      const std::optional<bool> better = take_better(input, pricing, std::move(other), start);
      if (!better) return;
      joined = joined || *better;
    }
  }
}

}  // namespace parsim::strategies::mixed
