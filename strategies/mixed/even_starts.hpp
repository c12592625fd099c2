// Pipelines that are the same throughout each class of devices. Private to the search for mixed
// stages.
#pragma once

#include <vector>

#include "strategies/mixed/stage_table.hpp"

namespace parsim::strategies::mixed {

/// Pipelines in which all stages have as many replicas and all of a class the same tensor degree,
/// over all devices of one class or several, each class in one go: what one would try by hand, and
/// where rearranged may begin. With the best borders for each; the best `count`, best first, with
/// steps below the limit.
[[nodiscard]] std::vector<ShapedPipeline> even_starts(const StrategyInput& input,
                                                      const std::vector<DeviceClass>& classes,
                                                      StageCosts& costs, StageTable& table,
                                                      std::size_t count, double limit);

}  // namespace parsim::strategies::mixed
