// The last touch to a pipeline: borders between stages moved while that shortens the estimate.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "lowering/estimate.hpp"
#include "strategies/strategies.hpp"

namespace parsim::strategies {

/// First layers of stages, and the plan that they make.
struct Staged {
  std::vector<std::size_t> first;
  Plan plan;
};

/// Operations of layers that one estimate of the plan walks through (estimated_step).
[[nodiscard]] std::size_t walk_of(const Plan& plan);

/// Moves one border after the other by a few layers, or blocks, as long as that lets a plan fit or
/// makes it faster, with the memory options of the input: closed forms know neither the gaps of a
/// schedule nor what crosses while a stage works. Returns the start if nothing is better, or if
/// there are too many operations to look again.
///
/// make   the plan of other first layers; stages stay non-empty and ascending
[[nodiscard]] Staged move_borders(const StrategyInput& input, lowering::Estimator& estimator,
                                  Staged start,
                                  const std::function<Plan(const std::vector<std::size_t>&)>& make);

/// Moves borders so that stages on the fullest devices hand layers, or blocks, to stages with free
/// memory, until the plan fits: greedily, one move at a time. Returns the start if it gets nowhere.
/// Memory options are the plan's own.
///
/// make   the plan of other first layers; nothing if its step would be too long
[[nodiscard]] Staged relieve_fullest(
    const StrategyInput& input, lowering::Estimator& estimator, Staged start,
    const std::function<std::optional<Plan>(const std::vector<std::size_t>&)>& make);

}  // namespace parsim::strategies
