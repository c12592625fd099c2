// Machines that plans may leave idle. Private to `best`.
#pragma once

#include <vector>

#include "strategies/strategies.hpp"

namespace parsim::strategies {

/// Devices of some machines of those that the input's plans may use: without one of each class of
/// like machines, without the class, and with half of the machines where all are alike. Those that
/// cannot take less than `limit` are left out: kernels alone take as long.
[[nodiscard]] std::vector<std::vector<DeviceId>> fewer_machines(const StrategyInput& input,
                                                                Seconds limit);

}  // namespace parsim::strategies
