// The order of a pipeline's slots by how long they take, where stages are unequal.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/plan.hpp"
#include "core/units.hpp"

namespace parsim::strategies {

/// What a stage does with a micro-batch.
struct StageTimes {
  Seconds forward{}, backward{}, weights{};
  Seconds send{};  ///< to the next stage, and from there the gradient
  /// Micro-batches that it may keep, from forward to their weight gradients; at least 1.
  std::int32_t most_kept = 1;
};

/// By stage, each with devices of its own: when it is free it begins a forward or backward pass
/// that can begin, in turn if both can; forward passes only as long as it may keep another
/// micro-batch. If none can, it begins the weight gradients that have waited longest. ZB-H1 and
/// ZB-H2 are patterns for equal stages; for others, too, their authors let an order follow from
/// times and memory (Qi et al. 2023, "Zero Bubble Pipeline Parallelism", section 3).
[[nodiscard]] std::vector<std::vector<Slot>> slots_by_time(std::span<const StageTimes> stages,
                                                           std::int32_t micro_batches);

}  // namespace parsim::strategies
