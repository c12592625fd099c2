// In place of a plan that something else refuses: the fastest of the plain ones that it accepts.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "core/units.hpp"
#include "experiment/run.hpp"

namespace parsim::experiment {

/// A plan, by the options that make it.
struct NearestPlan {
  /// "--strategy tensor --tp 2 --pp 1 --dp 4", or "--layout a.toml without its samples".
  std::string options;
  Seconds step{};
};

/// Tries the request's layout with equal shares, tensor parallelism with the degrees of `refused`
/// (and as the strategy chooses them, which on mixed clusters may differ between stages), data
/// parallelism, the pipeline, and on up to 128 GPUs tensor parallelism with every combination of
/// degrees that are powers of two, with the request's other options and equal shares; the plan of
/// the shortest simulated step that `accepts` takes and that fits in memory. Ties go to the first
/// of these. Nothing if there is none.
[[nodiscard]] std::optional<NearestPlan> nearest_plan(
    const Experiment& experiment, const Plan& refused,
    const std::function<bool(const Plan&)>& accepts);

}  // namespace parsim::experiment
