#include <algorithm>
#include <optional>
#include <utility>

#include "app/verbs.hpp"
#include "core/errors.hpp"
#include "experiment/communication.hpp"
#include "experiment/hardware.hpp"
#include "experiment/progress.hpp"
#include "experiment/run.hpp"
#include "report/hardware.hpp"
#include "report/page/report_file.hpp"
#include "report/runs.hpp"

namespace parsim::app {

namespace {

/// The strategies asked for, in the order of the table, all if none is named; then the layout.
std::vector<const strategies::Strategy*> chosen_strategies(const experiment::Request& request) {
  std::vector<const strategies::Strategy*> named;
  for (const std::string& name : request.strategies) {
    named.push_back(&strategies::strategy(name, "--strategy"));
  }
  std::vector<const strategies::Strategy*> chosen;
  for (const strategies::Strategy& entry : strategies::all()) {
    const auto times = std::count(named.begin(), named.end(), &entry);
    if (times > 1) {
      throw InputError("--strategy", "'" + entry.name + "' given twice", "accepted: once each");
    }
    if (times == 1 || named.empty()) chosen.push_back(&entry);
  }
  if (!request.layout_file.empty()) chosen.push_back(&experiment::layout_strategy());
  return chosen;
}

struct Candidate {
  const strategies::Strategy* strategy = nullptr;
  experiment::Planned planned;
  std::string error;  ///< why there is no plan; empty if there is one
};

/// A strategy that has no plan for this input must not hide what the others can do: its refusal
/// becomes a row. If none has one, the first refusal is the program's answer.
std::vector<Candidate> plan_all(const experiment::Experiment& experiment,
                                const std::vector<const strategies::Strategy*>& strategies,
                                bool quiet) {
  std::vector<Candidate> candidates;
  std::exception_ptr first;
  std::vector<Plan> known;
  experiment::Progress progress(strategies.size(), quiet);
  for (const strategies::Strategy* strategy : strategies) {
    progress.next(strategy->name);
    Candidate& candidate = candidates.emplace_back();
    candidate.strategy = strategy;
    try {
      candidate.planned = experiment::make_plan(
          experiment, *strategy,
          strategy->plan == strategies::plan_best ? known : std::vector<Plan>{}, &progress);
      if (strategy != &experiment::layout_strategy()) known.push_back(candidate.planned.plan);
    } catch (const InputError& error) {
      if (strategy == &experiment::layout_strategy()) throw;  // the user's own plan
      candidate.error = error.what();
      if (!first) first = std::current_exception();
    }
  }
  const bool none = std::none_of(candidates.begin(), candidates.end(),
                                 [](const Candidate& c) { return c.error.empty(); });
  if (none && first) std::rethrow_exception(first);
  return candidates;
}

/// Fastest first; rows without a plan last. Ties keep the table's order.
void sort_by_time(std::vector<experiment::RunResult>& results) {
  std::stable_sort(results.begin(), results.end(),
                   [](const experiment::RunResult& a, const experiment::RunResult& b) {
                     if (a.error.empty() != b.error.empty()) return a.error.empty();
                     return a.step_time < b.step_time;
                   });
}

std::string best_of(const std::vector<experiment::RunResult>& sorted) {
  for (const experiment::RunResult& result : sorted) {
    // `best` only repeats the winner among the others.
    if (result.fits() && result.strategy != "best") return result.strategy;
  }
  return {};
}

}  // namespace

Outcome run_compare(const experiment::Arguments& arguments) {
  experiment::Request request = experiment::make_request(arguments);
  const experiment::HardwareRequest hardware = experiment::hardware_request(request);
  const std::vector<const strategies::Strategy*> chosen = chosen_strategies(request);
  std::optional<report::ReportFile> report = report::report_file(arguments);
  const experiment::Answer<Machine> here =
      request.hardware ? experiment::probe_hardware(hardware) : experiment::Answer<Machine>{};
  request.machine = here.value;
  if (request.hardware && !here.value && request.cluster.empty() && request.profile.empty()) {
    return {report::report_no_hardware(here.refusal), ExitCode::hardware};
  }
  const experiment::Experiment experiment(request);
  std::vector<std::int64_t> counts;
  if (request.given.contains("--scaling")) {
    counts = experiment::parse_scaling(request.scaling,
                                       devices_of(experiment.cluster, DeviceKind::gpu).size());
  }
  const std::vector<Candidate> candidates = plan_all(experiment, chosen, arguments.has("--quiet"));
  std::vector<Plan> plans;
  for (const Candidate& candidate : candidates) {
    if (candidate.error.empty()) plans.push_back(candidate.planned.plan);
  }
  // A strategy without a plan may be the one that the options were for; its row says what it wants.
  if (plans.size() == candidates.size()) experiment::check_used(request, experiment.network, plans);

  std::optional<experiment::Scaling> scaling;
  if (!counts.empty())
    scaling = experiment::scale(experiment, chosen, counts, arguments.has("--quiet"));
  std::vector<experiment::RunResult> results;
  std::vector<report::StrategySection> sections;
  std::vector<ExecDag> dags;
  {
    experiment::Progress progress(candidates.size(), arguments.has("--quiet"));
    for (const Candidate& candidate : candidates) {
      progress.next(candidate.strategy->name);
      if (candidate.error.empty()) {
        experiment::Run run = experiment::run_plan(experiment, candidate.planned);
        results.push_back(run.result);
        results.back().strategy = candidate.strategy->name;
        if (report) {
          sections.push_back(report->section(experiment, run, candidate.planned.plan));
        }
        if (request.hardware) dags.push_back(std::move(run.dag));
      } else {
        results.emplace_back();
        if (request.hardware) dags.emplace_back();
        results.back().error = candidate.error;
        results.back().strategy = candidate.strategy->name;
      }
    }
  }
  experiment::check_algorithm_used(request, results);
  std::optional<experiment::HardwareRows> rows;
  if (request.hardware) rows = experiment::measure_rows(hardware, here, results, dags);
  sort_by_time(results);
  const bool fits = std::any_of(results.begin(), results.end(),
                                [](const experiment::RunResult& result) { return result.fits(); });
  const std::string best = best_of(results);
  report::Document document =
      report::report_comparison(experiment, results, best, scaling ? &*scaling : nullptr);
  if (rows) report::add_hardware(document, results, *rows);
  if (report) {
    report->write(experiment, document, results, std::move(sections),
                  scaling ? &*scaling : nullptr);
  }
  if (rows && !rows->refusal.empty()) return {std::move(document), ExitCode::hardware};
  return {std::move(document), fits ? ExitCode::ok : ExitCode::does_not_fit};
}

}  // namespace parsim::app
