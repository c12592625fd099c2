// What a comparison says to a user who brought the run that he has, by --plan or --layout: what
// the best plan gains over it, why, and whether his trainer can launch that plan.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "experiment/experiment.hpp"
#include "experiment/run.hpp"
#include "report/result_text.hpp"

namespace parsim::report {

/// A row that the trainer of the user's run can launch.
struct LaunchableRow {
  std::string strategy{};
  Seconds step{};
  double ratio = 1;
};
void fields(auto& visit, json::Of<LaunchableRow> auto& row) {
  visit("strategy", row.strategy);
  visit("step_time_s", row.step);
  visit("ratio", row.ratio, "as that of best");
}

/// The best plan against the user's run, from the numbers of their rows alone.
struct GainedRow {
  std::string against{};
  std::optional<std::string> best{};
  std::optional<double> ratio{};
  std::optional<Seconds> seconds{};
  std::vector<std::string> reasons{}, changes{};
  std::optional<std::string> trainer{};
  std::optional<LaunchableRow> launchable{};
  std::vector<std::string> lines{};
};
void fields(auto& visit, json::Of<GainedRow> auto& row) {
  visit("against", row.against, "the row of --plan or --layout");
  visit("best", row.best, "the first row; against if nothing is better, null if nothing fits");
  visit("ratio", row.ratio,
        Rule("against over best: of their steps, costs or energies, by --objective; null "
             "where the run does not fit in memory or nothing does"));
  visit("seconds", row.seconds,
        Rule(any_number, "of the run's step that best saves; null as ratio"));
  visit("reasons", row.reasons,
        "differences in time of means over the GPUs that compute, the largest first");
  visit("changes", row.changes, "degrees and options of best that are not the run's");
  visit("trainer", row.trainer, "whose file the run is, as plan --launch names it");
  visit("launchable", row.launchable,
        "the best row that trainer can launch and that is better than the run; null without");
  visit("lines", row.lines, "the same in sentences");
}

/// Nothing without such a run, or without another row with a plan. `sorted`: as complete_rows()
/// leaves them.
[[nodiscard]] std::optional<GainedRow> gained_row(const experiment::Experiment& experiment,
                                                  const std::vector<experiment::RunResult>& sorted);

}  // namespace parsim::report
