// The training step of the unsplit network: what every plan of it must compute.
#pragma once

#include <cstdint>
#include <vector>

#include "core/network.hpp"
#include "core/plan.hpp"
#include "tests/support/numeric.hpp"

namespace parsim::testing {

/// By layer: boxes of the output (samples counted over the global batch) that share statistics of
/// batch normalisation. Empty for a layer: all samples and positions share them.
using StatisticGroups = std::vector<std::vector<Region>>;

/// The groups that a plan makes: the cells of every batch normalisation, for every micro-batch.
[[nodiscard]] StatisticGroups statistic_groups(const Network& network, const Plan& plan);

/// What a step leaves behind. Blocks are whole tensors over the global batch.
struct Step {
  std::vector<Block> activations, gradients;  ///< by layer; zero where no parameter leads
  std::vector<Block> weight_gradients;        ///< by parameter
  std::vector<Block> weights;                 ///< by parameter, after weight −= rate · gradient
  double loss = 0;                            ///< mean over the batch, summed over Loss layers
};

/// By layer: true if the output depends on a parameter. Other layers get no gradient.
[[nodiscard]] std::vector<bool> leads_to_parameters(const Network& network);

/// Parameters before the step.
[[nodiscard]] std::vector<Block> initial_parameters(const Network& network);

/// One step of plain SGD on `data_block`s and `label`s.
///
/// zigzag   by layer, as in LayerPlan; empty: tokens in their own order
[[nodiscard]] Step train_step(const Network& network, std::int64_t batch,
                              const StatisticGroups& groups, const std::vector<Block>& parameters,
                              const std::vector<std::int32_t>& zigzag = {});

}  // namespace parsim::testing
