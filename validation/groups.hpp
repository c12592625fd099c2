// The best plan, measured and predicted: runs of one job under several plans, and the cost of
// following the prediction.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace parsim::validation {

/// A run of a job under one plan.
struct PlanRun {
  std::string group;                  ///< the job: what all plans of a group have in common
  std::string name;                   ///< of this run
  std::string plan;                   ///< identifies the plan; equal text, equal plan
  std::optional<double> measured_s;   ///< of a step; nothing if the run failed for lack of memory
  std::optional<double> predicted_s;  ///< of a step; nothing for runs that are not scored
  bool fits = true;                   ///< whether it is predicted to fit in memory
};

/// How well predictions find the best plan of a job.
struct PlanGroup {
  std::string group;
  std::size_t plans = 0;  ///< different ones, measured and predicted
  /// The run predicted fastest among those predicted to fit ("" if none is), and the best measured
  /// one. Of runs with equal predictions the slowest counts.
  std::string chosen, best;
  /// Measured time of `chosen` over that of `best`, less 1.
  std::optional<double> regret;
  /// Rank correlation of measured and predicted times; nothing if either has one value only.
  std::optional<double> spearman;
  std::size_t over_wrongly = 0;  ///< runs that succeeded but are predicted not to fit
  std::size_t fits_wrongly = 0;  ///< runs that ran out of memory but are predicted to fit
};

/// Groups with at least `least` different plans measured and predicted, in the order of their first
/// run. With fewer, guessing finds the best.
[[nodiscard]] std::vector<PlanGroup> plan_groups(std::span<const PlanRun> runs,
                                                 std::size_t least = 4);

}  // namespace parsim::validation
