// The order in which devices work through micro-batches when any layer may be on any devices.
#pragma once

#include "strategies/strategies.hpp"

namespace parsim::strategies::hypergraph {

/// Stages are runs of layers on the same devices; every device has a rank list. The order is that
/// of a small list schedule with the cost model's times: the slot that can start first, backward
/// before forward. With one_f_one_b no more micro-batches are in flight than there are devices. One
/// micro-batch: one stage, one rank list.
[[nodiscard]] Schedule pipelined(const StrategyInput& input, const std::vector<LayerPlan>& layers,
                                 std::int32_t micro_batches);

}  // namespace parsim::strategies::hypergraph
