// A step that no plan beats, and how far a plan is from it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/ids.hpp"
#include "experiment/experiment.hpp"
#include "experiment/run.hpp"

namespace parsim::experiment {

/// What takes its time on any device: by type of device, seconds if one of that type did all of it.
using WorkCosts = std::vector<double>;

/// The least time in which devices can do all work, each piece of which may be divided among them
/// at will:
///
///     max  Σ_w min_k λ_k · work[w][k]     over λ ≥ 0 with Σ_k counts[k] · λ_k = 1
///
/// the dual of the linear programme that divides it, so that any λ is a lower bound. The largest
/// for one or two types; for up to 16, where moving weight between two types no longer helps; for
/// more, with types that are equally good for the sum of all work.
/// Checked against enumeration: tests/experiment/lower_bound_test.cpp.
[[nodiscard]] double least_makespan(const std::vector<WorkCosts>& work,
                                    const std::vector<std::int64_t>& counts);

/// A lower bound of the step of any plan that works on these devices, for the input's network,
/// cluster, costs, batch, precisions and optimizer; nothing if kernels have no bound
/// (CostModel::least_time). The larger of
///
///   - the work: every layer's passes at their best price (whole waves, matrices as large as the
///     batch allows) and one update of every parameter, divided among unequal devices at will
///     (least_makespan); a device runs one kernel at a time, so that no step is shorter;
///   - the longest chain of layers, forward and backward, at each kernel's fixed cost.
///
/// Bytes on links, memory, micro-batches and recomputation are not counted.
[[nodiscard]] std::optional<Seconds> least_step(const strategies::StrategyInput& input,
                                                const std::vector<DeviceId>& devices);

/// Sets `lower_bound` of the rows with a plan: for the GPUs, and what else the row's plan uses.
void bound_steps(const Experiment& experiment, std::span<RunResult> results);

}  // namespace parsim::experiment
