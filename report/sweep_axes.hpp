// The axes along which the points of a sweep differ, found from the inputs of its results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace parsim::report {

/// Inputs that change together: "gpu, price".
struct SweepAxis {
  std::vector<std::string> names;
  std::vector<std::string> values;      ///< in the order in which the points have them
  std::vector<std::string> headings;    ///< of the values, without what all have in common
  std::vector<std::uint32_t> of_point;  ///< index of each point's value
};

/// An input of every point.
struct SweepInput {
  std::string name;
  std::vector<std::string> of_point;
};

/// Inputs that differ between points. Those that change together are one axis; one is left out
/// that follows from others, as a cluster "star:{gpus}" from "gpus".
[[nodiscard]] std::vector<SweepAxis> axes_of(const std::vector<SweepInput>& inputs);

/// The parts between commas that not all texts have: "8", "16" of "star:8,rate=…",
/// "star:16,rate=…".
[[nodiscard]] std::vector<std::string> differing_parts(const std::vector<std::string>& texts);

}  // namespace parsim::report
