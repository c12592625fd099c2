// Pipelines that differ a little from those that a search has found. Private to the search for
// mixed stages.
#pragma once

#include <set>
#include <vector>

#include "strategies/mixed/stage_table.hpp"

namespace parsim::strategies::mixed {

/// Stages one change away. A change:
///
/// - a stage goes to another place, two change places, one is left out, devices that are idle make
///   another one;
/// - a stage is divided in two of half its replicas or half its tensor degree, or joined with its
///   like behind it, or has twice the tensor degree and half the replicas, or the other way round;
///   the same for all stages of a class at once.
[[nodiscard]] std::set<Sequence> changed_sequences(const StrategyInput& input,
                                                   const std::vector<DeviceClass>& classes,
                                                   StageTable& table, const Sequence& stages);

/// Pipelines that come from `start` by changes that each shorten the step, the best `count` of
/// those that were looked at on the way, best first; those no better than `limit` are not. The
/// blocks are cut anew for each, in the best way for its stages. Unlike best_pipelines without all
/// detail it may return to a class that the pipeline has left.
[[nodiscard]] std::vector<ShapedPipeline> rearranged(const StrategyInput& input,
                                                     const std::vector<DeviceClass>& classes,
                                                     StageTable& table, const ShapedPipeline& start,
                                                     std::size_t count, double limit);

}  // namespace parsim::strategies::mixed
