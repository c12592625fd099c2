// Several strategies on one experiment: what 'compare' shows and each point of a sweep holds.
#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "experiment/run.hpp"

namespace parsim::experiment {

/// The strategy that --strategy names: the caller's own, or of the table. Throws InputError for an
/// unknown name.
[[nodiscard]] const strategies::Strategy& named_strategy(const Request& request,
                                                         std::string_view name);
/// The strategies asked for, in the order of the table, all of it if none is named; then the
/// caller's own; then the layout.
/// Throws InputError for an unknown name or one given twice.
[[nodiscard]] std::vector<const strategies::Strategy*> chosen_strategies(const Request& request);

/// A strategy with its plan, or why there is none.
struct Candidate {
  const strategies::Strategy* strategy = nullptr;
  Planned planned;
  std::string error;           ///< empty if there is a plan
  std::exception_ptr refusal;  ///< what `error` says
};

/// How long a strategy plans and simulates, compared with others. Only the time that is said to be
/// left depends on it.
[[nodiscard]] double weight_of(const strategies::Strategy& strategy);
/// Throws the first refusal if no candidate has a plan, and InputError for an option that made no
/// difference to any plan.
void check_candidates(const Experiment& experiment,
                      std::span<const std::optional<Candidate>> candidates);

/// Asks every strategy. One that has no plan for this input must not hide what the others can do:
/// its refusal becomes a row. If none has one, throws the first refusal. Throws InputError, too,
/// for an option that made no difference to any plan.
///
/// known   called with each candidate as soon as there is one, in the order of `strategies`
[[nodiscard]] std::vector<Candidate> plan_all(
    const Experiment& experiment, const std::vector<const strategies::Strategy*>& strategies,
    bool quiet, const std::function<void(const Candidate&, Progress&)>& known = {});

/// The row of a candidate without a plan.
[[nodiscard]] RunResult refused(const Candidate& candidate);

/// "--cp 4 --tp 2": degrees and micro-batches that were given and that the row's plan does not
/// have. Most strategies look at none. Empty for layouts and rows without a plan.
[[nodiscard]] std::string unfollowed_degrees(const Request& request, const RunResult& row);

/// Adds notes to the row of a plan: degrees that it does not follow, and that an imbalance of
/// experts changes nothing where each GPU has all of them.
void note_unfollowed(const Experiment& experiment, const Plan& plan, RunResult& row);

/// Completes rows that are compared with each other: equal plans, order (by --objective the fastest
/// or cheapest first, those that do not fit after those that do, rows without a plan last, ties in
/// the table's order), probabilities.
void complete_rows(const Experiment& experiment, std::vector<RunResult>& results);

/// The rows of the strategies that the request names, with no more than their numbers.
[[nodiscard]] std::vector<RunResult> compare(const Experiment& experiment);

}  // namespace parsim::experiment
