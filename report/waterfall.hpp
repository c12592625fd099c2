// From the peak to the step: where its time goes.
#pragma once

#include <string_view>

#include "experiment/utilization.hpp"
#include "report/document.hpp"

namespace parsim::report {

/// "matrix products, beyond that", after "model FLOPs at the peak".
[[nodiscard]] std::string_view part_words(experiment::StepPart part);

/// A row for every part that is not 0, with its share of the step.
[[nodiscard]] Table waterfall_table(const experiment::Waterfall& parts, Seconds step);

}  // namespace parsim::report
