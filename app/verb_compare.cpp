#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <optional>
#include <utility>

#include "app/interrupt.hpp"
#include "app/measured_rows.hpp"
#include "app/verbs.hpp"
#include "app/work_options.hpp"
#include "core/errors.hpp"
#include "experiment/candidate_workers.hpp"
#include "experiment/communication.hpp"
#include "experiment/comparison.hpp"
#include "experiment/hardware.hpp"
#include "experiment/many_messages.hpp"
#include "experiment/progress.hpp"
#include "experiment/whole_dag.hpp"
#include "report/hardware.hpp"
#include "report/page/report_file.hpp"
#include "report/result_table.hpp"
#include "report/runs.hpp"
#include "strategies/out_of_time.hpp"

namespace parsim::app {

namespace {

std::string best_of(const std::vector<experiment::RunResult>& sorted) {
  for (const experiment::RunResult& result : sorted) {
    // `best` only repeats the winner among the others.
    if (result.fits() && result.strategy != "best") return result.strategy;
  }
  return {};
}

bool refused_by_machine(const experiment::Candidate& candidate) {
  if (!candidate.refusal) return false;
  try {
    std::rethrow_exception(candidate.refusal);
  } catch (const RefusedByMachine&) {
    return true;
  } catch (...) {
    return false;
  }
}

/// A strategy's row and what else is made of its run.
struct Row {
  experiment::RunResult result;
  std::optional<report::StrategySection> section{};
  ExecDag dag{};
};

/// In the order of the strategies, not that in which they ended.
std::vector<experiment::RunResult> results_of(const std::vector<std::optional<Row>>& rows) {
  std::vector<experiment::RunResult> all;
  for (const std::optional<Row>& row : rows) {
    if (row) all.push_back(row->result);
  }
  return all;
}

report::Missing missing_rows(const std::string& reason,
                             const std::vector<const strategies::Strategy*>& chosen,
                             const std::vector<std::optional<Row>>& rows) {
  report::Missing missing{reason};
  for (std::size_t s = 0; s < chosen.size(); ++s) {
    if (!rows[s]) missing.strategies.push_back(chosen[s]->name);
  }
  return missing;
}

/// What is known when the user or a batch system loses patience.
report::Document interrupted(const experiment::Experiment& experiment,
                             std::vector<experiment::RunResult> results,
                             const report::Missing& missing) {
  experiment::complete_rows(experiment, results);
  return report::report_comparison(experiment, results, best_of(results), nullptr, missing);
}

/// --jobs and --time-limit.
void read_work(const experiment::Arguments& arguments, experiment::CompareWork& work) {
  const std::optional<std::size_t> jobs = jobs_argument(arguments);
  work.limit = time_argument(arguments, "--time-limit");
  if (work.limit && arguments.has("--scaling")) {
    throw InputError("--time-limit", "together with --scaling", "accepted: one of them");
  }
  const std::string_view forks = work.limit ? "--time-limit" : "--jobs";
  const bool asked = work.limit || jobs.value_or(1) > 1;
  if (asked && arguments.poll && !arguments.strategies.empty()) {
    throw InputError(forks, "with strategies of the caller's own, which run in its process",
                     "accepted: --jobs 1 without --time-limit");
  }
  if (asked) check_may_fork(forks);
  work.jobs = jobs.value_or(1);
}

}  // namespace

Outcome run_compare(const experiment::Arguments& arguments) {
  experiment::CompareWork work;  // its time begins
  experiment::Request request = experiment::make_request(arguments);
  if (request.given.contains("--columns")) report::check_columns(request.columns);
  fit_measured_steps(request);
  const experiment::HardwareRequest hardware = experiment::hardware_request(request);
  const std::vector<const strategies::Strategy*> chosen = experiment::chosen_strategies(request);
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
  read_work(arguments, work);
  std::vector<std::optional<Row>> rows(chosen.size());
  // Pages and hardware need all of a run, which stays in the process that simulated it.
  const bool runs_here = report || request.hardware;
  const auto warn = [&](const experiment::Candidate& candidate, experiment::Progress& progress) {
    progress.warn(experiment::warning_of_many_messages(experiment.network, experiment.cluster,
                                                       candidate.planned.plan));
  };
  const auto result_of = [&](const experiment::Candidate& candidate, experiment::Run run) {
    run.result.trainers =
        report::trainer_words(experiment.network, experiment.cluster, candidate.planned.plan);
    run.result.strategy = candidate.strategy->name;
    return run.result;
  };
  const auto run_there = [&](const experiment::Candidate& candidate,
                             experiment::Progress& progress) {
    warn(candidate, progress);
    return result_of(candidate, experiment::run_plan(experiment, candidate.planned,
                                                     experiment::Operations::folded));
  };
  std::map<std::size_t, std::string> unfinished;  // by row: what the machine refused
  const auto known = [&](std::size_t index, const experiment::Candidate& candidate,
                         std::optional<experiment::RunResult> result,
                         experiment::Progress& progress) {
    Row& row = rows[index].emplace();
    if (!candidate.error.empty()) {
      row.result = experiment::refused(candidate);
      if (refused_by_machine(candidate)) {
        unfinished[index] = fmt::format("{}: {}", row.result.strategy, candidate.error);
      }
    } else if (result) {
      row.result = *std::move(result);
    } else if (!runs_here) {
      row.result = run_there(candidate, progress);
    } else {
      warn(candidate, progress);
      experiment::check_whole_dag(experiment, candidate.planned.plan,
                                  request.hardware ? "--hw" : "--report");
      experiment::Run run = experiment::run_plan(experiment, candidate.planned);
      row.result = result_of(candidate, run);
      if (report) {
        row.section = report->section(experiment, run, candidate.planned.plan);
        row.section->result.strategy = row.result.strategy;  // a plan's own may be another
      }
      if (request.hardware) row.dag = std::move(run.dag);
    }
    progress.known(report::known_line(row.result));
    keep_for_interrupt(
        interrupted(experiment, results_of(rows), missing_rows("interrupted", chosen, rows)));
  };
  if (work.jobs > 1 || work.limit) {
    (void)experiment::plan_in_workers(experiment, chosen, work, arguments.has("--quiet"),
                                      runs_here ? experiment::RowMaker{} : run_there, known);
  } else {
    std::size_t next = 0;
    (void)experiment::plan_all(
        experiment, chosen, arguments.has("--quiet"),
        [&](const experiment::Candidate& candidate, experiment::Progress& progress) {
          known(next++, candidate, {}, progress);
        });
  }
  std::vector<experiment::RunResult> results = results_of(rows);
  const report::Missing missing = missing_rows(
      "stopped by --time-limit " + arguments.text("--time-limit").value_or(""), chosen, rows);
  std::optional<experiment::Scaling> scaling;
  if (!counts.empty())
    scaling = experiment::scale(experiment, chosen, counts, arguments.has("--quiet"));
  if (missing.strategies.empty()) experiment::check_algorithm_used(request, results);
  std::optional<experiment::HardwareRows> measured;
  if (request.hardware) {
    std::vector<ExecDag> dags;
    for (std::optional<Row>& row : rows) {
      if (row) dags.push_back(std::move(row->dag));
    }
    measured = experiment::measure_rows(hardware, here, results, dags);
  }
  experiment::complete_rows(experiment, results);
  const bool fits = std::any_of(results.begin(), results.end(),
                                [](const experiment::RunResult& result) { return result.fits(); });
  const std::string best = best_of(results);
  report::Document document =
      report::report_comparison(experiment, results, best, scaling ? &*scaling : nullptr, missing);
  for (const experiment::RunResult& result : results) {
    for (const std::string& note : result.notes) {
      if (note.starts_with(strategies::search_stopped))
        document.answer.push_back(fmt::format("{}: {}", result.strategy, note));
    }
  }
  for (const auto& [row, line] : unfinished) document.answer.push_back(line);
  if (measured) report::add_hardware(document, results, *measured);
  if (report) {
    std::vector<report::StrategySection> sections;
    for (std::optional<Row>& row : rows) {
      if (row && row->section) sections.push_back(*std::move(row->section));
    }
    report->write(experiment, document, results, std::move(sections),
                  scaling ? &*scaling : nullptr);
  }
  forget_for_interrupt();
  if (measured && !measured->refusal.empty()) return {std::move(document), ExitCode::hardware};
  if (!unfinished.empty()) return {std::move(document), ExitCode::unfinished};
  return {std::move(document), fits ? ExitCode::ok : ExitCode::does_not_fit};
}

}  // namespace parsim::app
