// Why a plan splits a layer as it does: what the step would take if this one layer were split
// another way.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "strategies/strategies.hpp"

namespace parsim::experiment {

/// A layer of a plan and its best alternative.
struct LayerReason {
  LayerId layer;
  Seconds work{};              ///< forward and backward of its slowest part, all micro-batches
  std::string alternative;     ///< "as data", "on one device"; empty if no other split was possible
  Seconds alternative_step{};  ///< estimated step with it
};

struct Explanation {
  Seconds step{};  ///< estimated
  std::vector<LayerReason> layers;
};

/// Tries for every layer: the splits that the other strategies' plans give it, its neighbours'
/// splits, and one device; in plans of several stages also its neighbours' stages, and cuts by
/// sample and by channel over the devices of its own. All other layers stay. Plans that cannot be
/// lowered do not count, nor does what would leave a device without a layer of one of its stages.
///
/// others   plans for the same input, each with one stage and the plan's number of micro-batches;
///          others are ignored
/// layers   only so many are tried, those with the most work: an estimate with a layer that all
///          devices exchange costs the square of their number
[[nodiscard]] Explanation explain(const strategies::StrategyInput& input, const Plan& plan,
                                  std::span<const Plan> others,
                                  std::size_t layers = std::numeric_limits<std::size_t>::max());

/// "sample 4 x channel 2", "sample 42,42,22,22", or "whole".
[[nodiscard]] std::string split_text(const LayerPlan& layer);

}  // namespace parsim::experiment
