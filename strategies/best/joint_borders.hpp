// Borders between stages and recomputation, chosen together. Private to `best`.
#pragma once

#include <optional>
#include <vector>

#include "strategies/best/candidates.hpp"

namespace parsim::strategies {

/// By stage its first layer; nothing unless stages are runs of layers in the order of the network.
[[nodiscard]] std::optional<std::vector<std::size_t>> first_layers_of_stages(const Plan& plan);

/// The plan with stages that begin at other units (units_of): units that change stages are divided
/// like one that is there already. Nothing if a stage has none like them. Marks of recomputation
/// are those of that unit.
[[nodiscard]] std::optional<Plan> recut(const Network& network,
                                        const std::vector<std::size_t>& units, const Plan& plan,
                                        const std::vector<std::size_t>& first);

/// Hands units from one stage to another, those between them keep as many, while that makes the
/// plan faster by estimate; with every cut stages recompute no more than they need to fit
/// (recomputing_less). Stages that keep fewer micro-batches recompute less, and so have time for
/// more layers. Nothing if no cut is better, or for a plan without stages.
[[nodiscard]] std::optional<PricedPlan> with_joint_borders(const StrategyInput& input,
                                                           lowering::Estimator& estimator,
                                                           const PricedPlan& start);

/// Adds these for the first plans of different stages, and sorts.
void add_joint_borders(const StrategyInput& input, lowering::Estimator& estimator,
                       std::vector<PricedPlan>& sorted);

}  // namespace parsim::strategies
