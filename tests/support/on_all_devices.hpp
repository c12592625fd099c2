// Tiny networks are fastest on one device: tests that want a pipeline's messages ask for them.
#pragma once

#include <algorithm>

#include "strategies/strategies.hpp"

namespace parsim::testing {

/// The strategy's plan; of `pipeline` one with a stage on every GPU.
[[nodiscard]] inline Plan plan_on_all_devices(const strategies::Strategy& strategy,
                                              strategies::StrategyInput input) {
  if (strategy.plan == strategies::plan_pipeline) {
    const std::size_t gpus = devices_of(input.cluster, DeviceKind::gpu).size();
    input.pipeline_parallel =
        static_cast<std::int32_t>(std::min(gpus, input.network.layers.size()));
  }
  return strategy.plan(input);
}

}  // namespace parsim::testing
