// The first step of model_of: which blocks of channels the layers of a network consist of.
#pragma once

#include <vector>

#include "strategies/hypergraph/model.hpp"

namespace parsim::strategies::hypergraph {

struct Blocks {
  std::vector<std::vector<Block>> of_layer;  ///< see Model::blocks
  std::vector<LayerId> maker;                ///< by row
};

/// most    blocks of a layer with rows of its own, as equal as can be
/// sizes   by layer: those of its blocks instead; empty, or none for a layer: `most` decides
[[nodiscard]] Blocks blocks_of(const Network& network, std::int32_t most,
                               const std::vector<std::vector<std::int64_t>>& sizes = {});

/// The channels of each block of a layer, along the first channel axis of its output; of a layer
/// without one: empty intervals.
[[nodiscard]] std::vector<Interval> channels_of(const Network& network, LayerId layer,
                                                const std::vector<Block>& blocks);

}  // namespace parsim::strategies::hypergraph
