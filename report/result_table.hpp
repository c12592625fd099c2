// The table of simulate and compare: a row for each strategy.
#pragma once

#include <string>
#include <vector>

#include "experiment/experiment.hpp"
#include "experiment/run.hpp"
#include "report/document.hpp"

namespace parsim::report {

/// whole   people get all columns, however narrow their terminal
/// objective   its column stays on a narrow terminal
[[nodiscard]] Table result_table(const std::vector<experiment::RunResult>& results, bool whole,
                                 strategies::Objective objective = strategies::Objective::time);

/// What the plan of the table's first row takes.
struct PlanLines {
  std::string step;  ///< "tp 1 x pp 1 x dp 8, zero 3, 124 ms (90 %: 103-275)"
  std::string use;   ///< "2070 samples/s, 48.3 % MFU, 3.56 GiB of 16.0 GiB"
};
[[nodiscard]] PlanLines plan_lines(const experiment::RunResult& first, const Table& table);

inline constexpr const char* question_keys[] = {"network", "cluster", "batch", "precision",
                                                "optimizer"};
/// Adds, for programs, what the rows answer, so that tables of several runs can be stacked.
void add_question(Table& table, const experiment::Experiment& experiment);

/// The columns that a list like "strategy,step,MFU" names, in its order, by titles without units or
/// by keys; small and capital letters are the same. A name that is a title and the key of another
/// column means the first to people and the second to programs. What no row has is "-".
[[nodiscard]] Table chosen_columns(const Table& table, const std::string& list);
/// Throws InputError for a name that no result_table() has, or one that comes twice.
void check_columns(const std::string& list);

}  // namespace parsim::report
