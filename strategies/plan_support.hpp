// What several strategies share when they fill a Plan.
#pragma once

#include <vector>

#include "strategies/strategies.hpp"

namespace parsim::strategies {

/// A plan with everything but the layers' cuts: names, batch, one stage, one micro-batch, a rank
/// list of `devices`.
[[nodiscard]] Plan empty_plan(const StrategyInput& input, std::string_view strategy,
                              const std::vector<DeviceId>& devices);

/// The devices strategies place layers on: the GPUs of the machine whose links to others have the
/// highest rate together first; among equals of the one with most GPUs, then with the fastest links
/// inside, then with the fastest GPUs, then with most memory, then as the cluster lists them. So a
/// file's order of unlike machines decides neither which devices are left out nor where a pipeline
/// begins. Throws InputError if there are none.
[[nodiscard]] std::vector<DeviceId> workers(const StrategyInput& input);

/// The workers by machine, and machines that nothing above tells apart together.
[[nodiscard]] std::vector<std::vector<std::vector<DeviceId>>> worker_classes(
    const StrategyInput& input);

/// Splits the samples of a micro-batch evenly over `devices`. One device: no cut.
[[nodiscard]] LayerPlan by_sample(std::int64_t samples, const std::vector<DeviceId>& devices);

/// How the layer's gradient copies are summed, from the input's choice.
[[nodiscard]] Sync chosen_sync(const StrategyInput& input);

/// Notes in the plan how many devices of a layer cut by sample get none, if any.
void note_idle(Plan& plan, const LayerPlan& layer);

/// If asked for, sets LayerPlan::overlap of the products between which devices share tokens: those
/// that need them gathered, and those whose sums are reduce-scattered.
void overlap_products(const StrategyInput& input, Plan& plan);

/// Adds a note if sequence parallelism was asked for and shares no layer.
void note_sequence_parallel(const StrategyInput& input, Plan& plan);

}  // namespace parsim::strategies
