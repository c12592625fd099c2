// Strategies of a comparison in worker processes: several at once, and no longer than a limit.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <vector>

#include "core/units.hpp"
#include "experiment/comparison.hpp"

namespace parsim::experiment {

struct CompareWork {
  std::size_t jobs = 1;  ///< processes at once
  /// From `start` on; what runs then is stopped, but `best` ends its search in time for its row.
  std::optional<Seconds> limit;
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();
};

/// The row of a candidate that has a plan.
using RowMaker = std::function<RunResult(const Candidate&, Progress&)>;

/// As plan_all(), in processes that are forked from this one, which must have a single thread
/// (has_one_thread). The plans are the same: those that start from others begin when those are
/// known. A process that dies makes its strategy's candidate an error and costs nothing else.
///
/// row     runs in the process that made the plan; empty: candidates come without rows
/// known   called here with index and candidate as each is known, and its row; in the order in
///         which they end
///
/// Returns a candidate for each strategy, nothing where the limit of time came before. Throws what
/// plan_all() does, and SimulationError if the limit came before there was any plan.
std::vector<std::optional<Candidate>> plan_in_workers(
    const Experiment& experiment, const std::vector<const strategies::Strategy*>& strategies,
    const CompareWork& work, bool quiet, const RowMaker& row,
    const std::function<void(std::size_t, const Candidate&, std::optional<RunResult>, Progress&)>&
        known);

}  // namespace parsim::experiment
