// Which passes over layers must follow each other for any element, in every plan: what makes a
// step longer than its work divided by the GPUs.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "core/network.hpp"
#include "lowering/gradient_flow.hpp"

namespace parsim::experiment {

/// By layer: how often a chain has its forward pass, and its backward pass (backward or
/// backward_data); from 0 to 1.
struct Chain {
  std::vector<double> forward, backward;
};

/// Takes an element of the loss, drawn uniformly of all samples, positions and terms of the
/// contraction, and follows it through the network: from a layer's element to one of those that it
/// depends on, so that the latter, too, is uniform among all of its layer. Whatever computes these
/// elements, one pass must follow the other; and a part with the share x of a layer computes the
/// element with the probability x. So for any plan
///
///     step ≥ Σ_l forward[l] · (mean time of its parts, by share) + the same of backward
///
/// Of all chains that of the largest sum of `forward_worth` and `backward_worth` (by layer), as far
/// as the two can be chosen. Layers count only where the element is uniform: behind a slice, it is
/// not until a layer reads all channels, or all places. Causal attention and experts' products do
/// not count, because their work is not that of their elements.
[[nodiscard]] Chain longest_chain(const Network& network, const lowering::GradientFlow& flow,
                                  const std::vector<double>& forward_worth,
                                  const std::vector<double>& backward_worth);

}  // namespace parsim::experiment
