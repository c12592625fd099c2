// Kernel times that follow from measured times of whole layers or blocks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "core/cost_model.hpp"
#include "experiment/layer_times.hpp"
#include "sim/sim.hpp"

namespace parsim::experiment {

/// A model whose kernels take, over each part of `network` (before its blocks, a block, after
/// them), as long as was measured: the base's times of the part's kernels times one factor per
/// pass, for each measured number of samples and of devices that share the layers.
///
/// On one device the kernels of a part add up to what was measured. On a group they do so after
/// what the group is seen to wait for its exchange in a simulated step; kernels that the group does
/// not divide take what they take on the largest measured group that does not divide them either.
/// What remains for the others is at least a twentieth of what was measured, should that be shorter
/// than the exchange.
///
/// Between two measured numbers of samples the time of a part is on the line between both; beyond
/// them it changes as the base's does. A part that was not measured, or of whose kernels the base
/// says that they take no time, has the base's times.
///
/// times     those of other groups than `cluster` has within a machine are left out
/// network   of which the model will be asked, or copies with the same names of layers
/// reduce    the precision in which gradients are summed, which is part of what was measured
/// file      for the model's summary
///
/// Holds a reference to `cluster`. Throws InputError if the network has no blocks.
/// Checked: tests/experiment/layer_costs_test.cpp.
[[nodiscard]] std::unique_ptr<CostModel> make_layer_costs(const std::vector<LayerTime>& times,
                                                          const Network& network,
                                                          const Cluster& cluster,
                                                          std::unique_ptr<CostModel> base,
                                                          Precision reduce, sim::SimOptions options,
                                                          const std::string& file);

}  // namespace parsim::experiment
