// Which plan is the best, in reality and as predicted: runs of one job under several plans, and
// what it would cost to follow the prediction.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace parsim {

/// A run of a job under one plan.
struct PlanRun {
  std::string group;                  ///< the job: what all plans of a group have in common
  std::string name;                   ///< of this run
  std::string plan;                   ///< what tells plans apart; equal text, equal plan
  std::optional<double> measured_s;   ///< a step; nothing if the run failed for want of memory
  std::optional<double> predicted_s;  ///< a step; nothing for runs that are not scored
  bool fits = true;                   ///< whether it is predicted to fit in memory
};

/// How well the best plan of a job is found.
struct PlanGroup {
  std::string group;
  std::size_t plans = 0;  ///< different ones, measured and predicted
  /// The run that is predicted to be the fastest of those predicted to fit, and the measured best
  /// of all. Runs that are predicted to be equal are one choice: it counts as its slowest. "" if
  /// none is predicted to fit.
  std::string chosen, best;
  /// Measured time of `chosen` over that of `best`, less 1.
  std::optional<double> regret;
  /// Rank correlation of measured and predicted times; nothing if either has one value only.
  std::optional<double> spearman;
  std::size_t over_wrongly = 0;  ///< runs that took place and are predicted not to fit
  std::size_t fits_wrongly = 0;  ///< runs that failed for want of memory and are predicted to fit
};

/// Groups with at least `least` different plans measured and predicted, in the order of their first
/// run. With fewer, the best one can be guessed.
[[nodiscard]] std::vector<PlanGroup> plan_groups(std::span<const PlanRun> runs,
                                                 std::size_t least = 4);

}  // namespace parsim
