// How much memory a plan needs on each device.
#pragma once

#include <vector>

#include "core/cluster.hpp"
#include "core/network.hpp"
#include "core/plan.hpp"

namespace parsim {

/// Peak memory of one device and what it is made of.
struct MemoryUse {
  Bytes weights, gradients, optimizer_state, activations, communication;
  [[nodiscard]] Bytes total() const {
    return weights + gradients + optimizer_state + activations + communication;
  }
};

/// By device id. Activations are kept from their forward to their backward, for as many
/// micro-batches as the schedule has in flight at once; in-place kinds (activation functions,
/// flatten) share their input's memory; communication is the largest set of received pieces plus
/// two buckets.
[[nodiscard]] std::vector<MemoryUse> memory_use(const Network& network, const Cluster& cluster,
                                                const Plan& plan);

}  // namespace parsim
