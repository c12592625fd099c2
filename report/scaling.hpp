// The table of `compare --scaling`.
#pragma once

#include "experiment/scaling.hpp"
#include "report/document.hpp"

namespace parsim::report {

/// A row for every number of GPUs, a column of speed-ups for every strategy.
[[nodiscard]] Table scaling_table(const experiment::Scaling& scaling);

}  // namespace parsim::report
