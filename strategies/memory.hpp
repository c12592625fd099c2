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

/// Whether a layer's output takes the place of its input, as frameworks do for ReLU, or its input
/// need not be kept beside it, as softmax's, or it is a view of it.
[[nodiscard]] bool works_in_place(const LayerKind& kind);

/// By layer, bytes of an element that the backward pass keeps: of its output, if its own gradient
/// or that of a layer that reads it follows from it, and a byte of a dropout's mask. Functions that
/// work in place keep nothing of their own: what they need counts where their memory is.
[[nodiscard]] std::vector<std::int64_t> kept_bytes(const Network& network, std::int64_t element);

/// By device id.
///
///     weights, gradients   the parts that a device's cells use, at the plan's element size, or its
///                          share of them if they are split; gradients of several micro-batches
///                          are whole until they are summed
///     optimizer_state      0, 1 or 2 fp32 numbers each, and an fp32 copy of 16-bit weights
///     activations          outputs that the backward pass reads, and received pieces, from forward
///                          to backward, for as many micro-batches as the schedule has in flight,
///                          and the largest gradient with its input's. Activation functions and
///                          views take their input's place. Dropped outputs count from when they
///                          are computed again to their backward, and keep what they are made of
///     communication        the largest received piece, the two largest buckets, and what of split
///                          weights and gradients is whole at a time (split_states.hpp)
///
/// A parameter server holds weights, gradients and states of what it serves. Workspaces of
/// libraries (see --workspaces) and fragmentation are not counted.
[[nodiscard]] std::vector<MemoryUse> memory_use(const Network& network, const Cluster& cluster,
                                                const Plan& plan);

}  // namespace parsim
