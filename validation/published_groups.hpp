// Rows of published tables that run one job under several plans.
#pragma once

#include <optional>

#include "validation/validation.hpp"

namespace parsim::validation {

/// The row as a run of its job: a network and its sequence length, GPUs by type and number,
/// machine, global batch, precision and framework make a job; degrees, micro-batches, ZeRO stage,
/// recomputation, placement and the like make a plan. Nothing for rows that are no training runs,
/// and for rows without a prediction, unless they failed for lack of memory.
[[nodiscard]] std::optional<PlanRun> plan_run(const Claim& claim, const Prediction& prediction);

}  // namespace parsim::validation
