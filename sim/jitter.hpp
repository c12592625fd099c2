// Kernels that never take the same time twice.
#pragma once

#include "core/ids.hpp"
#include "sim/sim.hpp"

namespace parsim {

/// The factor of the operation's kernel time: log-normal with mean 1 and the given relative
/// standard deviation, a function of the seed and the operation's id alone. 1 without jitter.
[[nodiscard]] double jitter_factor(const Jitter& jitter, OpId op);

}  // namespace parsim
