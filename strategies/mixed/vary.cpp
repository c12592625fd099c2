#include "strategies/mixed/vary.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <utility>

#include "strategies/mixed/layouts.hpp"
#include "strategies/mixed/rearrange.hpp"

namespace parsim::strategies::mixed {

namespace {

/// How much longer than that of the layout a step may be by the closed form.
constexpr double worth_trying = 1.3;
/// Part of the time for all layouts.
constexpr double for_changes = 0.5;

/// The stages of a layout in the table; nothing if it does not know them.
std::optional<Sequence> sequence_of(StageTable& table, const ShapedPipeline& pipeline) {
  Sequence stages;
  for (const StageShape& shape : pipeline.shapes) {
    const std::optional<std::size_t> known = table.add(shape);
    if (!known) return std::nullopt;
    stages.push_back(*known);
  }
  return stages;
}

struct Change {
  Sequence stages;
  ShapedPipeline pipeline;
};

/// The changes that were not seen before, the one with the shortest step by the closed form first.
std::vector<Change> changes(const StrategyInput& input, const std::vector<DeviceClass>& classes,
                            StageTable& table, const ShapedPipeline& start,
                            std::set<Sequence>& seen) {
  const std::optional<Sequence> now = sequence_of(table, start);
  constexpr double unlimited = std::numeric_limits<double>::infinity();
  const auto priced = now ? table.priced(start, unlimited) : std::nullopt;
  if (!priced) return {};
  seen.insert(*now);
  std::vector<Change> all;
  for (const Sequence& stages : changed_sequences(input, classes, table, *now)) {
    if (seen.contains(stages)) continue;
    const Borders borders = table.cut(stages, worth_trying * priced->step);
    if (borders.first_block.empty()) continue;
    all.push_back({stages, table.pipeline(stages, borders)});
  }
  std::stable_sort(all.begin(), all.end(), [](const Change& a, const Change& b) {
    return a.pipeline.step < b.pipeline.step;
  });
  return all;
}

}  // namespace

void vary_stages(const StrategyInput& input, const std::vector<DeviceClass>& classes,
                 Pricing& pricing, Priced& start) {
  StageCosts costs(input, classes);
  StageTable table(input, classes, costs, start.mixed.micro_batches);
  std::set<Sequence> seen;
  for (bool better = true; std::exchange(better, false);) {
    const std::optional<ShapedPipeline> now = shaped_as(classes, costs, start.mixed.layout);
    if (!now) return;
    for (const Change& change : changes(input, classes, table, *now, seen)) {
      if (pricing.used(start.plan) > for_changes) return;
      seen.insert(change.stages);
      std::optional<Layout> layout = layout_of(classes, costs, change.pipeline);
      if (!layout) continue;
      const MixedStages mixed{std::move(*layout), start.mixed.micro_batches, change.pipeline.step,
                              start.mixed.waits};
      const std::optional<bool> taken = take_better(input, pricing, {mixed, {}, {}}, start);
      if (!taken) return;
      if (!*taken) continue;
      move_blocks(input, pricing, start);
      better = true;
      break;
    }
  }
}

}  // namespace parsim::strategies::mixed
