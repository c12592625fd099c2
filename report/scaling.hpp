// The table of `compare --scaling`.
#pragma once

#include <string>
#include <vector>

#include "experiment/scaling.hpp"
#include "report/document.hpp"

namespace parsim::report {

/// A row for every number of GPUs, a column of speed-ups for every strategy; "over" where a plan
/// does not fit in memory.
[[nodiscard]] Table scaling_table(const experiment::Scaling& scaling);
/// Why strategies have no plan on some numbers of GPUs, a line for each strategy and reason.
[[nodiscard]] std::vector<std::string> scaling_notes(const experiment::Scaling& scaling);

}  // namespace parsim::report
