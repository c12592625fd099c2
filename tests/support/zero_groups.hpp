// Random groups of replicas that split states (ZeroGroup). Include it where lowering is linked.
#pragma once

#include <random>

#include "core/errors.hpp"
#include "lowering/sync.hpp"

namespace parsim::testing {

/// Gives each layer whose replicas split states groups of random size, or machines, where these
/// are alike.
[[nodiscard]] inline Plan with_zero_groups(Plan plan, const Network& network,
                                           const Cluster& cluster, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  for (LayerPlan& layer : plan.layers) {
    if (layer.zero.stage == 0) continue;
    const auto ranks = static_cast<std::int32_t>(random() % 5);
    layer.zero.group = ranks == 4 ? ZeroGroup{0, true} : ZeroGroup{ranks, false};
    try {
      static_cast<void>(lowering::sync_groups(network, cluster, plan));
    } catch (const InputError&) {
      layer.zero.group = {};
    }
  }
  return plan;
}

/// Puts `each` devices after one another on a machine.
[[nodiscard]] inline Cluster on_machines(Cluster cluster, std::size_t each) {
  for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
    cluster.devices[d].node = NodeId{d / each};
  }
  return cluster;
}

}  // namespace parsim::testing
