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

namespace parsim {

namespace {

/// The strategies asked for, in the order of the table, all if none is named; then the layout.
std::vector<const Strategy*> chosen_strategies(const Request& request) {
  std::vector<const Strategy*> named;
  for (const std::string& name : request.strategies) {
    named.push_back(&strategy(name, "--strategy"));
  }
  std::vector<const Strategy*> chosen;
  for (const Strategy& entry : strategies()) {
    const auto times = std::count(named.begin(), named.end(), &entry);
    if (times > 1) {
      throw InputError("--strategy", "'" + entry.name + "' given twice", "accepted: once each");
    }
    if (times == 1 || named.empty()) chosen.push_back(&entry);
  }
  if (!request.layout_file.empty()) chosen.push_back(&layout_strategy());
  return chosen;
}

struct Candidate {
  const Strategy* strategy = nullptr;
  Planned planned;
  std::string error;  ///< why there is no plan; empty if there is one
};

/// A strategy that has no plan for this input must not hide what the others can do: its refusal
/// becomes a row. If none has one, the first refusal is the program's answer.
std::vector<Candidate> plan_all(const Experiment& experiment,
                                const std::vector<const Strategy*>& strategies, bool quiet) {
  std::vector<Candidate> candidates;
  std::exception_ptr first;
  std::vector<Plan> known;
  Progress progress(strategies.size(), quiet);
  for (const Strategy* strategy : strategies) {
    progress.next(strategy->name);
    Candidate& candidate = candidates.emplace_back();
    candidate.strategy = strategy;
    try {
      candidate.planned =
          make_plan(experiment, *strategy,
                    strategy->plan == plan_best ? known : std::vector<Plan>{}, &progress);
      if (strategy != &layout_strategy()) known.push_back(candidate.planned.plan);
    } catch (const InputError& error) {
      if (strategy == &layout_strategy()) throw;  // the user's own plan
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
void sort_by_time(std::vector<RunResult>& results) {
  std::stable_sort(results.begin(), results.end(), [](const RunResult& a, const RunResult& b) {
    if (a.error.empty() != b.error.empty()) return a.error.empty();
    return a.step_time < b.step_time;
  });
}

std::string best_of(const std::vector<RunResult>& sorted) {
  for (const RunResult& result : sorted) {
    // `best` only repeats the winner among the others.
    if (result.fits() && result.strategy != "best") return result.strategy;
  }
  return {};
}

}  // namespace

Outcome run_compare(const Arguments& arguments) {
  Request request = make_request(arguments);
  const HardwareRequest hardware = hardware_request(request);
  const std::vector<const Strategy*> chosen = chosen_strategies(request);
  std::optional<ReportFile> report = report_file(arguments);
  const Answer<Machine> here = request.hardware ? probe_hardware(hardware) : Answer<Machine>{};
  request.machine = here.value;
  if (request.hardware && !here.value && request.cluster.empty() && request.profile.empty()) {
    return {report_no_hardware(here.refusal), ExitCode::hardware};
  }
  const Experiment experiment(request);
  std::vector<std::int64_t> counts;
  if (request.given.contains("--scaling")) {
    counts = parse_scaling(request.scaling, devices_of(experiment.cluster, DeviceKind::gpu).size());
  }
  const std::vector<Candidate> candidates = plan_all(experiment, chosen, arguments.has("--quiet"));
  std::vector<Plan> plans;
  for (const Candidate& candidate : candidates) {
    if (candidate.error.empty()) plans.push_back(candidate.planned.plan);
  }
  // A strategy without a plan may be the one that the options were for; its row says what it wants.
  if (plans.size() == candidates.size()) check_used(request, experiment.network, plans);

  std::optional<Scaling> scaling;
  if (!counts.empty()) scaling = scale(experiment, chosen, counts, arguments.has("--quiet"));
  std::vector<RunResult> results;
  std::vector<StrategySection> sections;
  std::vector<ExecDag> dags;
  {
    Progress progress(candidates.size(), arguments.has("--quiet"));
    for (const Candidate& candidate : candidates) {
      progress.next(candidate.strategy->name);
      if (candidate.error.empty()) {
        Run run = run_plan(experiment, candidate.planned);
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
  check_algorithm_used(request, results);
  std::optional<HardwareRows> rows;
  if (request.hardware) rows = measure_rows(hardware, here, results, dags);
  sort_by_time(results);
  const bool fits = std::any_of(results.begin(), results.end(),
                                [](const RunResult& result) { return result.fits(); });
  const std::string best = best_of(results);
  Document document = report_comparison(experiment, results, best, scaling ? &*scaling : nullptr);
  if (rows) add_hardware(document, results, *rows);
  if (report) {
    report->write(experiment, document, results, std::move(sections),
                  scaling ? &*scaling : nullptr);
  }
  if (rows && !rows->refusal.empty()) return {std::move(document), ExitCode::hardware};
  return {std::move(document), fits ? ExitCode::ok : ExitCode::does_not_fit};
}

}  // namespace parsim
