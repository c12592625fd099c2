// Rings of ring attention: which cells of an attention layer pass on keys and values. Private to
// lowering/.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "lowering/communication.hpp"

namespace parsim::lowering {

/// Cells that share the tokens of one part of an attention layer. Block b are the keys and values
/// of member b's own tokens.
struct Ring {
  std::vector<std::int32_t> cells;  ///< by member, in the order of their tokens
  std::vector<DeviceId> devices;    ///< of the cells
  /// Of keys and of values, by block. All of one size.
  std::array<std::vector<Region>, 2> blocks;
  /// Of keys and of values, by member: a block to the next member; its addition, in seconds.
  std::array<std::vector<PricedCommunication>, 2> sends;
  std::array<std::vector<double>, 2> additions;

  /// The block that a member works with in a step.
  [[nodiscard]] std::size_t block(std::size_t member, std::size_t step) const {
    return (member + cells.size() - step) % cells.size();
  }
};

/// Without prices. `cells` are those of attention whose plan has a ring.
[[nodiscard]] std::vector<Ring> rings_of(const Network& network, LayerId attention,
                                         const std::vector<Cell>& cells);

/// What a cell computes with a block: of its part the keys of these tokens.
[[nodiscard]] Part part_of_ring(const Cell& cell, const Cell& block);

}  // namespace parsim::lowering
