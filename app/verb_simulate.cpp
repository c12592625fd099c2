#include <fmt/format.h>

#include <optional>

#include "app/verbs.hpp"
#include "core/errors.hpp"
#include "core/json.hpp"
#include "experiment/communication.hpp"
#include "experiment/files.hpp"
#include "experiment/hardware.hpp"
#include "experiment/progress.hpp"
#include "experiment/run.hpp"
#include "lowering/lower.hpp"
#include "report/dot.hpp"
#include "report/hardware.hpp"
#include "report/page/report_file.hpp"
#include "report/runs.hpp"
#include "report/trace.hpp"

namespace parsim {

namespace {

/// The one strategy that simulate and plan want.
const Strategy& only_strategy(const Request& request) {
  if (!request.layout_file.empty()) return layout_strategy();
  if (request.strategies.size() != 1) {
    throw InputError("--strategy",
                     request.strategies.empty()
                         ? std::string("missing")
                         : fmt::format("given {} times", request.strategies.size()),
                     fmt::format("accepted: one name (see 'parsim list strategies'); 'parsim "
                                 "compare' takes several"));
  }
  return strategy(request.strategies.front(), "--strategy");
}

Planned chosen_plan(const Experiment& experiment, const Strategy* strategy, bool quiet) {
  if (strategy == nullptr) return {*experiment.plan, experiment.preparation};
  Progress progress(1, quiet);
  progress.next(strategy->name);
  Planned planned = make_plan(experiment, *strategy, {}, &progress);
  check_used(experiment.request, experiment.network, {planned.plan});
  return planned;
}

}  // namespace

Outcome run_simulate(const Arguments& arguments) {
  Request request = make_request(arguments);
  const HardwareRequest hardware = hardware_request(request);
  const Strategy* strategy = request.plan_file.empty() ? &only_strategy(request) : nullptr;
  std::optional<OutputFile> trace;
  const std::string path = arguments.text("--trace").value_or("");
  if (arguments.has("--trace")) trace.emplace(path, "--trace");

  if (arguments.has("--trace") && arguments.text("--report") == path) {
    throw InputError("--report", fmt::format("'{}' is also the file of --trace", path),
                     "accepted: another name");
  }
  std::optional<ReportFile> report = report_file(arguments);

  const Answer<Machine> here = request.hardware ? probe_hardware(hardware) : Answer<Machine>{};
  request.machine = here.value;
  if (request.hardware && !here.value && request.cluster.empty() && request.profile.empty() &&
      request.plan_file.empty()) {
    return {report_no_hardware(here.refusal), ExitCode::hardware};
  }
  const Experiment experiment(request);
  const Planned planned = chosen_plan(experiment, strategy, arguments.has("--quiet"));
  Run run = run_plan(experiment, planned);
  check_algorithm_used(experiment.request, {&run.result, 1});
  std::optional<HardwareRows> rows;
  if (request.hardware) {
    std::vector<RunResult> results{run.result};
    rows = measure_rows(hardware, here, results, {run.dag});
    run.result = results[0];
  }
  Document document = report_simulation(experiment, run.result);
  if (rows) add_hardware(document, {run.result}, *rows);
  if (trace) {
    const bool measured = rows && !rows->timelines.empty() && run.result.measured;
    const std::string text = chrome_trace(run.dag, experiment.cluster, run.timeline,
                                          measured ? &rows->timelines.front() : nullptr);
    trace->commit(path.ends_with(".gz") ? gzip(text) : text);
    document.notes.push_back(fmt::format("trace written to {}", shown_path(path)));
  }
  if (report) {
    report->write(experiment, document, {run.result},
                  {report->section(experiment, run, planned.plan)}, nullptr);
  }
  if (rows && !rows->refusal.empty()) return {std::move(document), ExitCode::hardware};
  return {std::move(document), run.result.fits() ? ExitCode::ok : ExitCode::does_not_fit};
}

Outcome run_plan_verb(const Arguments& arguments) {
  const Request request = make_request(arguments);
  const Strategy& strategy = only_strategy(request);
  const std::string plan_path = arguments.text("-o").value_or("");
  const std::string dag_path = arguments.text("--dag").value_or("");
  for (const std::string_view flag : {"-o", "--dag"}) {
    if (arguments.text(flag) == "") {
      throw InputError(flag, "the name is empty", "accepted: the name of a file to write");
    }
  }
  if (arguments.has("-o") && plan_path == dag_path) {
    throw InputError("--dag", fmt::format("'{}' is also the file of -o", dag_path),
                     "accepted: another name");
  }
  std::optional<OutputFile> plan_file;
  std::optional<OutputFile> dag_file;
  if (arguments.has("-o")) plan_file.emplace(plan_path, "-o");
  if (arguments.has("--dag")) dag_file.emplace(dag_path, "--dag");

  const Experiment experiment(request);
  const Planned planned = chosen_plan(experiment, &strategy, arguments.has("--quiet"));
  std::string dag_text;
  if (dag_file) {
    const ExecDag dag = lower(experiment.network, experiment.cluster, planned.plan);
    dag_text = dag_path.ends_with(".dot") ? dot_of(dag, experiment.cluster) : to_json(dag);
  }
  const std::string plan_text = to_json(planned.plan);
  // Both texts exist before the first file appears.
  if (plan_file) plan_file->commit(plan_text);
  if (dag_file) dag_file->commit(dag_text);
  return {report_plan(experiment, planned, plan_path, dag_path), ExitCode::ok};
}

}  // namespace parsim
