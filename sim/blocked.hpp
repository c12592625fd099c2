// Names the operations that never ended and what they wait for.
#pragma once

#include <string>

#include "core/cluster.hpp"
#include "core/timeline.hpp"

namespace parsim::sim {

/// "2 of 3 operations never ended: operation 1 (delay on 'gpu0') waits for operation 2 (…); …",
/// naming at most five and for each at most three; "" if all ended. An operation that never ended
/// has a negative end.
[[nodiscard]] std::string blocked_operations(const ExecDag& dag, const Cluster& cluster,
                                             const Timeline& timeline);

}  // namespace parsim::sim
