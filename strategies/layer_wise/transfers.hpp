// t_X: what it costs to bring a tensor from how its producer is split to how its reader needs it.
#pragma once

#include "strategies/layer_wise/tables.hpp"

namespace parsim::strategies::layer_wise {

/// t_X of operand `operand.input` of layer `operand.layer` for every pair of configurations: rows
/// the producer's, columns the reader's; the layers belong to these nodes. Zero where every device
/// has what it needs.
[[nodiscard]] Matrix transfer_table(const StrategyInput& input, const ClusterModel& model,
                                    TransferRule rule, const Consumer& operand,
                                    const Node& producer, const Node& reader);

}  // namespace parsim::strategies::layer_wise
