#include "strategies/best/recomputing_less.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "strategies/blocks.hpp"
#include "strategies/plan_support.hpp"
#include "strategies/price.hpp"

namespace parsim::strategies {

namespace {

using MemoryUses = std::vector<lowering::MemoryUse>;

/// By layer, what a rule of recomputation does with it.
struct RecomputeMark {
  bool recompute = false, regather = false;
};
using RecomputeMarks = std::vector<RecomputeMark>;

/// What the devices of a rank list recompute: the first `more` of their blocks as rule + 1 has it,
/// the others as `rule`.
struct Dropping {
  const RankList* list = nullptr;
  std::vector<std::int64_t> blocks;  ///< in their order
  std::size_t rule = 0, more = 0;
};

/// Bytes beyond what its fullest device may use, at least 1 if it does not fit; or what is free,
/// negative.
double excess(const StrategyInput& input, const RankList& list, const MemoryUses& uses) {
  double most = -std::numeric_limits<double>::infinity();
  for (const DeviceId device : list.devices) {
    most = std::max(most, static_cast<double>(uses[device.index()].total().value -
                                              input.usable_memory(device).value));
  }
  return most;
}

std::vector<Dropping> parts_of(const StrategyInput& input, const Plan& plan,
                               const std::vector<std::int64_t>& block_of,
                               const std::vector<MemoryUses>& uses) {
  std::vector<Dropping> parts;
  for (const RankList& list : plan.schedule.rank_lists) {
    Dropping& part = parts.emplace_back();
    part.list = &list;
    std::set<std::int32_t> stages;
    for (const Slot& slot : list.slots) stages.insert(slot.stage);
    for (std::size_t l = 0; l < plan.layers.size(); ++l) {
      const bool own = stages.contains(plan.schedule.stage_of_layer[l]);
      if (!own || (!part.blocks.empty() && part.blocks.back() == block_of[l])) continue;
      part.blocks.push_back(block_of[l]);
    }
    std::size_t fitting = 0;
    while (fitting + 1 < uses.size() && excess(input, list, uses[fitting]) > 0) ++fitting;
    if (fitting == 0) continue;
    part.rule = fitting - 1;
    const double lacking = excess(input, list, uses[part.rule]);
    const double saved = lacking - excess(input, list, uses[fitting]);
    const auto all = static_cast<double>(part.blocks.size());
    part.more = static_cast<std::size_t>(std::clamp(std::ceil(lacking / saved * all), 1.0, all));
  }
  return parts;
}

Plan with_parts(Plan plan, const std::vector<Dropping>& parts,
                const std::vector<std::int64_t>& block_of,
                const std::vector<RecomputeMarks>& marks) {
  std::vector<const Dropping*> part_of(plan.layers.size(), nullptr);  // by stage
  for (const Dropping& part : parts) {
    for (const Slot& slot : part.list->slots) part_of[static_cast<std::size_t>(slot.stage)] = &part;
  }
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    const Dropping* part = part_of[static_cast<std::size_t>(plan.schedule.stage_of_layer[l])];
    if (part == nullptr) continue;
    const auto first = part->blocks.begin();
    const auto end = first + static_cast<std::ptrdiff_t>(part->more);
    const bool more = std::find(first, end, block_of[l]) != end;
    const RecomputeMark mark = marks[part->rule + (more ? 1 : 0)][l];
    plan.layers[l].recompute = mark.recompute;
    plan.layers[l].regather = mark.regather;
  }
  return plan;
}

}  // namespace

Plan recomputing_less(const StrategyInput& input, lowering::Estimator& estimator, const Plan& plan,
                      std::span<const Recompute> rules) {
  if (rules.size() < 2) return plan;
  std::vector<RecomputeMarks> marks;  // by rule
  std::vector<MemoryUses> uses;
  for (const Recompute rule : rules) {
    Plan marked = plan;
    if (rule != rules.back()) recompute(input.network, rule, marked, input.recompute_every);
    RecomputeMarks& of_rule = marks.emplace_back();
    for (const LayerPlan& layer : marked.layers) {
      of_rule.push_back({layer.recompute, layer.regather});
    }
    uses.push_back(estimated_memory(estimator, marked));
    const std::vector<RankList>& lists = plan.schedule.rank_lists;
    const auto fits = [&](const RankList& list) { return excess(input, list, uses.back()) <= 0; };
    if (std::all_of(lists.begin(), lists.end(), fits)) break;  // more of it is not needed
  }
  constexpr int tries = 3;
  const std::vector<std::int64_t> block_of = blocks_of(input.network);
  std::vector<Dropping> parts = parts_of(input, plan, block_of, uses);
  for (int i = 0; i < tries; ++i) {
    Plan less = with_parts(plan, parts, block_of, marks);
    if (less.layers == plan.layers) break;
    const MemoryUses now = estimated_memory(estimator, less);
    bool fits = true;
    for (Dropping& part : parts) {
      if (excess(input, *part.list, now) <= 0) continue;
      fits = false;
      part.more = std::min(part.more + 1, part.blocks.size());
    }
    if (fits) return less;
  }
  return plan;
}

}  // namespace parsim::strategies
