// A network as a chain of layers in numbers, and plans that run parts of the chain on replicas of
// devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "strategies/hybrid/allocation.hpp"
#include "strategies/strategies.hpp"

namespace parsim::hybrid {

/// By layer, in the network's order. Times are straight lines through two numbers of samples.
struct Chain {
  std::vector<DeviceId> devices;
  std::vector<std::size_t> kinds;           ///< by device
  std::vector<std::vector<Affine>> time_s;  ///< by kind, layer: forward and backward
  std::vector<double> boundary_bytes;       ///< by layer: a sample's, from before it to it or on
  std::vector<double> weight_bytes;         ///< by layer; tied weights at their first layer
};
[[nodiscard]] Chain make_chain(const StrategyInput& input, const std::vector<DeviceId>& devices);

/// Everything a hybrid plan is made from.
struct Choice {
  std::vector<std::size_t> first;  ///< first layer of every part
  std::int32_t micro_batches = 1;
  Genes genes;
  std::vector<std::int64_t> shares;  ///< samples of a micro-batch by replica
  Fitness fitness;
};

/// First layers of `parts` parts of equal load, up to a slack for which fewer bytes cross between
/// parts: times are the mean over the devices.
[[nodiscard]] std::vector<std::size_t> equal_load(const Chain& chain, std::size_t parts,
                                                  std::int64_t samples, double slack);
/// First layers of parts such that the slowest device of a given allocation is as fast as possible,
/// up to a slack.
[[nodiscard]] std::vector<std::size_t> fitted_load(const Chain& chain, const Choice& choice,
                                                   double slack);

/// The allocation problem of a cut. Memory is what memory_use() says of one replica, and the
/// buckets that replicas exchange.
[[nodiscard]] Problem make_problem(const StrategyInput& input, const Chain& chain,
                                   const std::vector<std::size_t>& first, std::size_t replicas,
                                   std::int32_t micro_batches);

/// Parts as stages of a pipeline, each part's samples cut over its replicas. A device that has
/// several parts works on them in the order of one pipeline.
[[nodiscard]] Plan make_plan(const StrategyInput& input, const std::vector<DeviceId>& devices,
                             const Choice& choice);

}  // namespace parsim::hybrid
