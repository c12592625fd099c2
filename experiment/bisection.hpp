// How much data can cross the middle of a cluster.
#pragma once

#include <optional>

#include "core/cluster.hpp"

namespace parsim::experiment {

/// Rate at which the first half of the GPUs, in id order, can send to the second half, all at once:
/// the maximum flow between the two sets over all links, one direction. Devices forward nothing. An
/// odd GPU counts to the second half. Nothing for fewer than two GPUs.
///
/// The true bisection is the worst of all halves, which is NP-hard; ids follow the wiring in every
/// generator and preset, so that the halves in id order are the natural ones.
[[nodiscard]] std::optional<BytesPerSecond> bisection_rate(const Cluster& cluster);

}  // namespace parsim::experiment
