// Devices that a plan leaves idle, and why.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "strategies/strategies.hpp"

namespace parsim::strategies {

/// How such lines begin.
constexpr std::string_view idle_line = "idle: ";

/// A line for each type of device of which some have no part of the plan: how many, and why. By the
/// closed forms of the search for stages that differ: a pipeline's stage of one block on them would
/// be slower than the slowest one, or not fit. Else the estimate of the plan with such a stage.
/// Where stages are no runs of blocks, that the strategy found no faster plan, if it looks for one.
[[nodiscard]] std::vector<std::string> idle_devices(const StrategyInput& input, const Plan& plan);

}  // namespace parsim::strategies
