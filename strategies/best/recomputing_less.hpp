// Recomputation of no more than lets a plan fit. Private to `best`.
#pragma once

#include <span>

#include "lowering/estimate.hpp"
#include "strategies/strategies.hpp"

namespace parsim::strategies {

/// A plan that fits, with less recomputation, which never saves time: the devices of each rank list
/// have the least rule that lets them fit, and that in no more of their blocks than they need, the
/// first ones, in the others the rule before it. As it is, if that does not fit.
///
/// rules   the least recomputation first; the plan recomputes as the last one says
[[nodiscard]] Plan recomputing_less(const StrategyInput& input, lowering::Estimator& estimator,
                                    const Plan& plan, std::span<const Recompute> rules);

}  // namespace parsim::strategies
