// What a tensor-parallel group does for a layer: the parts that it computes, the collectives that
// it needs.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "strategies/strategies.hpp"

namespace parsim::strategies::tensor {

/// Whether every device of the group has all of the output, at the latest when parts are summed.
[[nodiscard]] bool held_whole(const std::vector<Cut>& cuts);
[[nodiscard]] bool by_token(const std::vector<Cut>& cuts);

/// The part of a layer that a device of a group computes, the largest one.
///
/// zigzag   as in LayerPlan
[[nodiscard]] Part part_of(const Network& network, LayerId id, const std::vector<Cut>& cuts,
                           std::int64_t samples, std::int32_t zigzag = 0);

/// Seconds that a group spends, with a micro-batch, on collectives for a layer's output and its
/// gradient: sums of partial results, sums of what parts of readers give back, gathers for readers
/// that need all.
///
/// readers   consumers of the network's layers
/// cuts      by layer, as tensor::split makes them
/// parts     of the tokens, of which the group has one
[[nodiscard]] double exchange_time(const StrategyInput& input,
                                   const std::vector<std::vector<Consumer>>& readers,
                                   const std::vector<std::vector<Cut>>& cuts, LayerId id,
                                   std::int64_t samples, std::span<const DeviceId> group,
                                   std::int64_t parts = 1);

/// What of the exchanges of a group is not behind its products, layer by layer: with --tp-overlap
/// what the chunks of a product gather or scatter is behind its other chunks, if that suffices.
class ExposedExchange {
 public:
  ExposedExchange(const StrategyInput& input, std::size_t tensor)
      : chunks_(input.tensor_overlap ? static_cast<double>(tensor) : 1) {}

  /// Seconds of a layer's exchange, or of earlier ones, that come on top of its own time.
  ///
  /// held_whole   whether the product's output is, or will be: its sum ends what is waiting
  double next_to(double time, double exchange, bool product, bool held_whole);

 private:
  double chunks_;
  double waiting_ = 0;
};

}  // namespace parsim::strategies::tensor
