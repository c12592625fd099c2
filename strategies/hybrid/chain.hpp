// A network as a chain of layers in numbers, and plans that run parts of the chain on replicas of
// devices.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "lowering/gradient_flow.hpp"
#include "strategies/hybrid/allocation.hpp"
#include "strategies/strategies.hpp"

namespace parsim::strategies::hybrid {

/// By layer, in the network's order.
class Chain {
 public:
  /// `input` must outlive it.
  Chain(const StrategyInput& input, const std::vector<DeviceId>& devices);

  std::vector<DeviceId> devices;
  std::vector<std::size_t> kinds;      ///< by device
  std::vector<double> boundary_bytes;  ///< by layer: a sample's, from before it to it or on
  std::vector<double> weight_bytes;    ///< by layer; tied weights at their first layer
  std::vector<std::size_t> units;      ///< first layers at which parts may begin

  /// By kind, layer: forward, backward and a micro-batch's share of the update. Straight lines
  /// through `samples`, where they are exact, and half of them.
  using Times = std::vector<std::vector<Affine>>;
  [[nodiscard]] const Times& times(std::int64_t samples, std::int32_t micro_batches) const;

 private:
  [[nodiscard]] Times measure(std::int64_t samples, std::int32_t micro_batches) const;

  const StrategyInput* input_;
  lowering::GradientFlow flow_;
  std::vector<DeviceId> like_;                 ///< by kind: a device
  std::vector<std::vector<Seconds>> updates_;  ///< by kind, layer
  mutable std::map<std::pair<std::int64_t, std::int32_t>, Times> known_;
};

/// Samples of a micro-batch for each of so many replicas, one at least.
[[nodiscard]] std::int64_t usual_samples(const StrategyInput& input, std::size_t replicas,
                                         std::int32_t micro_batches);

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
                                                  std::int64_t samples, std::int32_t micro_batches,
                                                  double slack);
/// First layers of parts such that the slowest device of a given allocation is as fast as possible,
/// up to a slack.
[[nodiscard]] std::vector<std::size_t> fitted_load(const Chain& chain, const Choice& choice,
                                                   double slack);

/// The allocation problem of a cut. Memory is memory_use() of one replica plus the buckets that
/// replicas exchange.
[[nodiscard]] Problem make_problem(const StrategyInput& input, const Chain& chain,
                                   const std::vector<std::size_t>& first, std::size_t replicas,
                                   std::int32_t micro_batches);

/// Parts as stages of a pipeline, each part's samples cut over its replicas. A device that has
/// several parts works on them in the order of one pipeline.
[[nodiscard]] Plan make_plan(const StrategyInput& input, const std::vector<DeviceId>& devices,
                             const Choice& choice);

}  // namespace parsim::strategies::hybrid
