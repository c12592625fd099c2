// Devices described to cuDNN where there are none.
#pragma once

#include <string>
#include <vector>

namespace parsim::hw {

/// The device types that have a description.
[[nodiscard]] std::vector<std::string> described_models();
/// As cuDNN's JSON, for ConvPlan::describe; "" for a type without one.
[[nodiscard]] std::string description_of(const std::string& model);

}  // namespace parsim::hw
