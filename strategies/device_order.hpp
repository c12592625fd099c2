// In which order devices stand in a pipeline.
#pragma once

#include <vector>

#include "strategies/strategies.hpp"

namespace parsim {

/// The devices in an order in which what neighbours send each other takes least time in all: the
/// least sum over neighbours of the slower way's time for a large message alone.
///
/// Exact (Held and Karp 1962) up to 12 devices, and among equals the order lowest by place in
/// `devices`; more are improved by reversing stretches of the given order (2-opt); beyond 256 they
/// stay as given.
///
/// Checked: tests/strategies/device_order_test.cpp, against all orders and on a cube mesh.
[[nodiscard]] std::vector<DeviceId> in_chain_order(const StrategyInput& input,
                                                   const std::vector<DeviceId>& devices);

}  // namespace parsim
