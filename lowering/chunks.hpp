// Products in chunks of tokens (LayerPlan::overlap): which chunks, and how what they read and make
// moves. Private to lowering/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "lowering/communication.hpp"

namespace parsim::lowering {

/// The chunks of a cell, as many as cells share its tokens.
struct Chunks {
  std::size_t own = 0;  ///< of what is gathered, what the device has; of sums, what it keeps
  std::vector<Interval> tokens;

  /// A device begins with the tokens that it has and goes on with those that come round the ring;
  /// chunks of sums end with the own one, so that others leave before.
  [[nodiscard]] std::size_t visited(std::size_t step, bool own_last) const {
    const std::size_t count = tokens.size();
    return own_last ? (own + 1 + step) % count : (own % count + count - step) % count;
  }
};

/// By cell. `out` is the layer's output.
[[nodiscard]] std::vector<Chunks> chunks_of(const Shape& out, const std::vector<Cell>& cells);

/// What a cell computes of a chunk. Tokens are the first axis after the sample, as in Ring.
[[nodiscard]] Part part_of_chunk(const Cell& cell, Interval tokens);

/// An all-gather in which every member passes on the parts, beginning with its own: in members - 1
/// steps all have all.
struct GatherRing {
  std::size_t members = 0;                           ///< 0: none
  std::vector<std::vector<std::int32_t>> producers;  ///< by member, of its part
  std::vector<PricedCommunication> sends;            ///< by sender and part, see at()
  std::vector<double> copies;  ///< by member, of gradients: its part to where the others come

  [[nodiscard]] bool empty() const { return members == 0; }
  [[nodiscard]] std::size_t next(std::size_t member) const { return (member + 1) % members; }
  /// The part that a member sends in a step.
  [[nodiscard]] std::size_t part(std::size_t member, std::size_t step) const {
    return (member + members - step) % members;
  }
  /// The part that comes last to a member.
  [[nodiscard]] std::size_t last(std::size_t member) const { return next(member); }
  /// Position of a member and a part in a table.
  [[nodiscard]] std::size_t at(std::size_t member, std::size_t part) const {
    return member * members + part;
  }
  [[nodiscard]] std::size_t dates() const { return members * members; }
};

/// Partial sums that leave in chunks, each for the cell that keeps its sum.
struct ScatteredChunks {
  std::vector<std::int32_t> keepers;       ///< by chunk, also its own; empty: not in chunks
  std::vector<PricedCommunication> sends;  ///< by sender (its own chunk) and chunk, see at()
  std::vector<double> additions;           ///< by chunk, of the keeper's own; seconds

  [[nodiscard]] std::size_t at(std::size_t sender, std::size_t chunk) const {
    return sender * keepers.size() + chunk;
  }
};

}  // namespace parsim::lowering
