// One step as a picture of its own, for slides and documentation: --trace FILE.svg.
#pragma once

#include <string>

#include "experiment/run.hpp"

namespace parsim::report {

/// An SVG file: for each class of devices with equal timelines (of many the first 16) what their
/// memory holds, and above each other their kernels and their communication. Colours and words are
/// those of the page; kernels of a micro-batch bear its number, counted from 0, where there is
/// room.
[[nodiscard]] std::string step_drawing(const Cluster& cluster, const experiment::Run& run);

}  // namespace parsim::report
