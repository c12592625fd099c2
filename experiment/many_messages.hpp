// Plans whose simulation takes minutes: said before it begins.
#pragma once

#include <string>

#include "core/network.hpp"
#include "core/plan.hpp"

namespace parsim::experiment {

/// Messages of a step between layers on different devices, estimated from the cuts alone, in the
/// time that it takes to read the plan: each part of an output goes to each part of the reader that
/// may share samples with it, and the gradients come back. Layers on the same devices exchange by
/// collectives, which are not counted.
[[nodiscard]] double messages_between_groups(const Network& network, const Plan& plan);

/// What a user should know before the plan is simulated, and what to do instead; "" for plans that
/// do not take long. Measured: a million such messages take about 7 s of processor time and 0.6 GB
/// (docs/scale.md).
[[nodiscard]] std::string warning_of_many_messages(const Network& network, const Cluster& cluster,
                                                   const Plan& plan);

}  // namespace parsim::experiment
