// The table of simulate and compare: a row for each strategy.
#pragma once

#include <vector>

#include "experiment/experiment.hpp"
#include "experiment/run.hpp"
#include "report/document.hpp"

namespace parsim::report {

/// whole   people get all columns, however narrow their terminal
/// objective   its column stays on a narrow terminal
[[nodiscard]] Table result_table(const std::vector<experiment::RunResult>& results, bool whole,
                                 strategies::Objective objective = strategies::Objective::time);

/// Adds, for programs, what the rows answer, so that tables of several runs can be stacked.
void add_question(Table& table, const experiment::Experiment& experiment);

}  // namespace parsim::report
