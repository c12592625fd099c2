#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "app/interrupt.hpp"
#include "app/measured_rows.hpp"
#include "app/verbs.hpp"
#include "core/errors.hpp"
#include "experiment/communication.hpp"
#include "experiment/comparison.hpp"
#include "experiment/hardware.hpp"
#include "experiment/many_messages.hpp"
#include "experiment/progress.hpp"
#include "report/hardware.hpp"
#include "report/page/report_file.hpp"
#include "report/result_table.hpp"
#include "report/runs.hpp"

namespace parsim::app {

namespace {

std::string best_of(const std::vector<experiment::RunResult>& sorted) {
  for (const experiment::RunResult& result : sorted) {
    // `best` only repeats the winner among the others.
    if (result.fits() && result.strategy != "best") return result.strategy;
  }
  return {};
}

/// What is known when the user or a batch system loses patience.
report::Document interrupted(const experiment::Experiment& experiment,
                             std::vector<experiment::RunResult> results, std::size_t asked) {
  experiment::complete_rows(experiment, results);
  report::Document document =
      report::report_comparison(experiment, results, best_of(results), nullptr);
  document.answer.push_back(
      fmt::format("interrupted after {} of {} strategies", results.size(), asked));
  return document;
}

}  // namespace

Outcome run_compare(const experiment::Arguments& arguments) {
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
  std::vector<experiment::RunResult> results;
  std::vector<report::StrategySection> sections;
  std::vector<ExecDag> dags;
  const auto run = [&](const experiment::Candidate& candidate, experiment::Progress& progress) {
    if (candidate.error.empty()) {
      progress.warn(experiment::warning_of_many_messages(experiment.network, experiment.cluster,
                                                         candidate.planned.plan));
      experiment::Run done =
          experiment::run_plan(experiment, candidate.planned,
                               report || request.hardware ? experiment::Operations::all
                                                          : experiment::Operations::folded);
      results.push_back(done.result);
      results.back().trainers =
          report::trainer_words(experiment.network, experiment.cluster, candidate.planned.plan);
      results.back().strategy = candidate.strategy->name;
      if (report) sections.push_back(report->section(experiment, done, candidate.planned.plan));
      if (request.hardware) dags.push_back(std::move(done.dag));
    } else {
      results.push_back(experiment::refused(candidate));
      if (request.hardware) dags.emplace_back();
    }
    progress.known(report::known_line(results.back()));
    keep_for_interrupt(interrupted(experiment, results, chosen.size()));
  };
  (void)experiment::plan_all(experiment, chosen, arguments.has("--quiet"), run);
  std::optional<experiment::Scaling> scaling;
  if (!counts.empty())
    scaling = experiment::scale(experiment, chosen, counts, arguments.has("--quiet"));
  experiment::check_algorithm_used(request, results);
  std::optional<experiment::HardwareRows> rows;
  if (request.hardware) rows = experiment::measure_rows(hardware, here, results, dags);
  experiment::complete_rows(experiment, results);
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
  forget_for_interrupt();
  if (rows && !rows->refusal.empty()) return {std::move(document), ExitCode::hardware};
  return {std::move(document), fits ? ExitCode::ok : ExitCode::does_not_fit};
}

}  // namespace parsim::app
