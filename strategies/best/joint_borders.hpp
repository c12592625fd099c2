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

/// The plan with other numbers of blocks in its stages, each of which recomputes no more than it
/// needs to fit (recomputing_less): those that keep fewer micro-batches recompute less, and so have
/// time for more blocks. The numbers that promise most by the times of kernels, and by the memory
/// of two cuts, are estimated; fewer of large plans. Nothing if none is better, or for a plan whose
/// stages are no runs of blocks.
[[nodiscard]] std::optional<PricedPlan> with_joint_borders(const StrategyInput& input,
                                                           lowering::Estimator& estimator,
                                                           const PricedPlan& start);

/// Adds these for the first plans that differ in stages, micro-batches or their order, and sorts.
void add_joint_borders(const StrategyInput& input, lowering::Estimator& estimator,
                       std::vector<PricedPlan>& sorted);

}  // namespace parsim::strategies
