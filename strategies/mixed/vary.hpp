// Layouts near a good one, by simulation. Private to the search for mixed stages.
#pragma once

#include <vector>

#include "strategies/mixed/improve.hpp"
#include "strategies/mixed/stage_costs.hpp"

namespace parsim::strategies::mixed {

/// Makes one change after the other to the stages of a layout (changed_sequences, with new borders
/// by the closed form, then moved) as long as that helps and there is time. Prices decide; the
/// closed form only says which change is tried first, for near the best its order is not theirs.
/// Layouts of other kinds than StageTable knows stay.
void vary_stages(const StrategyInput& input, const std::vector<DeviceClass>& classes,
                 Pricing& pricing, Priced& start);

}  // namespace parsim::strategies::mixed
