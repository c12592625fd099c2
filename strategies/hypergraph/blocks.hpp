// The first step of model_of: which blocks of channels the layers of a network consist of.
#pragma once

#include <vector>

#include "strategies/hypergraph/model.hpp"

namespace parsim::hypergraph {

struct Blocks {
  std::vector<std::vector<Block>> of_layer;  ///< see Model::blocks
  std::vector<LayerId> maker;                ///< by row
};

[[nodiscard]] Blocks blocks_of(const Network& network, std::int32_t most);

/// The channels of each block of a layer, along the first channel axis of its output; of a layer
/// without one: empty intervals.
[[nodiscard]] std::vector<Interval> channels_of(const Network& network, LayerId layer,
                                                const std::vector<Block>& blocks);

}  // namespace parsim::hypergraph
