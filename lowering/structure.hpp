// Facts about a network alone, which prices of all its plans share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/network.hpp"
#include "lowering/gradient_flow.hpp"

namespace parsim::lowering {

/// Facts about the network alone.
struct Structure {
  explicit Structure(const Network& network);
  GradientFlow flow;
  std::vector<std::vector<Shape>> inputs;               ///< by layer, of its operands
  std::vector<std::vector<Consumer>> readers;           ///< by layer
  std::vector<std::vector<std::int32_t>> reader_index;  ///< [layer][input]: position in readers
  std::vector<std::size_t> first_edge;  ///< by layer, of its inputs; then the number of all edges
  std::vector<std::vector<LayerId>> users;  ///< by parameter
  /// By layer: the first layer that does the same among neighbours that do the same, so that their
  /// fragments are equal: most layers of a transformer are like those of its second block.
  std::vector<LayerId> like;
};

}  // namespace parsim::lowering
