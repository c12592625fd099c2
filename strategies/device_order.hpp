// In which order devices stand in a pipeline.
#pragma once

#include <vector>

#include "strategies/strategies.hpp"

namespace parsim::strategies {

/// The devices in the order that minimises communication between neighbours: the sum over
/// neighbours of the time of a large message alone, in the slower direction.
///
/// Exact (Held and Karp 1962) up to 12 devices, and among equals the order lowest by position in
/// `devices`; more are improved by reversing stretches of the given order (2-opt); beyond 256 they
/// stay as given.
///
/// Checked: tests/strategies/device_order_test.cpp, against all orders and on a cube mesh.
[[nodiscard]] std::vector<DeviceId> in_chain_order(const StrategyInput& input,
                                                   const std::vector<DeviceId>& devices);

}  // namespace parsim::strategies
