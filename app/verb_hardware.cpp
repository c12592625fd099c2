// validate --hw and calibrate: predictions and this machine side by side.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "app/verbs.hpp"
#include "core/errors.hpp"
#include "core/files.hpp"
#include "core/json.hpp"
#include "core/text.hpp"
#include "experiment/hardware.hpp"
#include "experiment/perturbation.hpp"
#include "experiment/progress.hpp"
#include "lowering/lower.hpp"
#include "report/hardware.hpp"
#include "report/page/validation_page.hpp"
#include "report/runs.hpp"
#include "report/validation.hpp"
#include "validation/class_times.hpp"
#include "validation/validation.hpp"

namespace parsim::app {

using experiment::Answer;
using experiment::Arguments;

namespace {

/// A network and strategy on the machine, planned.
struct HardwareCase {
  std::string network, strategy;
  experiment::Planned planned;
  experiment::Run run;  ///< predicted
};

/// The networks asked for; without any, a small one where no GPU runs it.
std::vector<std::string> networks_for(const Arguments& arguments, const Machine& machine) {
  std::vector<std::string> named = arguments.texts("--network");
  if (named.empty()) named.emplace_back(machine.backend == "cuda" ? "alexnet" : "lenet5");
  return named;
}

std::vector<std::string> strategies_for(const Arguments& arguments) {
  std::vector<std::string> named = arguments.texts("--strategy");
  if (named.empty()) {
    for (const strategies::Strategy& entry : strategies::all()) {
      if (entry.name != "best") named.push_back(entry.name);  // one of the others, with changes
    }
  }
  for (const std::string& name : named) static_cast<void>(strategies::strategy(name, "--strategy"));
  return named;
}

/// Options that say how the plans of the cases are made.
bool is_of_cases(const experiment::Option& option) {
  return option.is_for("simulate") && option.is_for("validate") && !option.key.empty() &&
         option.group != experiment::OptionGroup::hardware && option.flag != "--network" &&
         option.flag != "--strategy";
}

/// The request of some strategies on a network; the machine found is its cluster.
experiment::Request request_of(const Arguments& arguments, const std::string& network,
                               const std::vector<std::string>& strategies, const Machine& machine) {
  Arguments asked{"simulate", {}, {}};
  asked.values["--network"] = {network};
  asked.values["--strategy"] = strategies;
  asked.values["--hw"] = {""};
  for (const experiment::Option& option : experiment::options()) {
    if (is_of_cases(option) && arguments.has(option.flag)) {
      asked.values[std::string(option.flag)] = arguments.texts(option.flag);
    }
  }
  experiment::Request request = experiment::make_request(asked);
  request.machine = machine;
  return request;
}

/// The request of one case: without what only other strategies read.
experiment::Request case_request(Arguments arguments, const std::string& network,
                                 const std::string& name, const Machine& machine) {
  std::erase_if(arguments.values, [&](const auto& given) {
    return std::any_of(experiment::options().begin(), experiment::options().end(),
                       [&](const experiment::Option& option) {
                         return option.flag == given.first && !option.is_read_by(name);
                       });
  });
  return request_of(arguments, network, {name}, machine);
}

/// Plans and predicts; a strategy without a plan for a network is left out with its reason.
std::vector<HardwareCase> predict_cases(const Arguments& arguments, const Machine& machine,
                                        const std::string& profile,
                                        std::vector<validation::Unresolved>& unresolved) {
  std::vector<HardwareCase> cases;
  const std::vector<std::string> networks = networks_for(arguments, machine);
  const std::vector<std::string> names = strategies_for(arguments);
  experiment::Progress progress(networks.size() * names.size(), arguments.has("--quiet"),
                                arguments.poll);
  for (const std::string& network : networks) {
    const experiment::Request all = request_of(arguments, network, names, machine);
    std::vector<Plan> plans;
    Network planned_for;
    for (const std::string& name : names) {
      progress.next(name);
      experiment::Request request = case_request(arguments, network, name, machine);
      if (!profile.empty()) request.profile = profile;
      const experiment::Experiment experiment(request);
      planned_for = experiment.network;
      try {
        const experiment::Planned planned =
            experiment::make_plan(experiment, strategies::strategy(name, "--strategy"));
        cases.push_back(
            {experiment.network.name, name, planned, experiment::run_plan(experiment, planned)});
        plans.push_back(planned.plan);
      } catch (const InputError& error) {
        unresolved.push_back({experiment.network.name, name, error.what()});
      }
    }
    if (plans.size() == names.size()) {
      experiment::check_used(all, planned_for, plans);
    }
  }
  return cases;
}

std::vector<ExecDag> dags_of(const std::vector<HardwareCase>& cases) {
  std::vector<ExecDag> dags;
  for (const HardwareCase& one : cases) dags.push_back(one.run.dag);
  return dags;
}

/// Cases whose every operation was measured. Plans depend on costs and costs on what plans compute:
/// a first calibration over the plans of modelled costs, plans by it, a second one over both.
struct Calibrated {
  std::vector<HardwareCase> cases;
  Answer<Profile> profile;
};
Calibrated calibrated_cases(const Arguments& arguments, const experiment::HardwareRequest& hardware,
                            const Machine& machine,
                            std::vector<validation::Unresolved>& unresolved) {
  std::vector<validation::Unresolved> ignored;
  Calibrated out;
  std::vector<ExecDag> dags = dags_of(predict_cases(arguments, machine, {}, ignored));
  out.profile = experiment::calibrate_hardware(hardware, dags);
  if (!out.profile.value) return out;
  {
    const MemoryFile first(to_json(*out.profile.value));  // where Experiment can read it
    out.cases = predict_cases(arguments, machine, first.path(), unresolved);
  }
  for (const HardwareCase& one : out.cases) dags.push_back(one.run.dag);
  out.profile = experiment::calibrate_hardware(hardware, dags);
  if (!out.profile.value) return out;
  const MemoryFile second(to_json(*out.profile.value));
  for (HardwareCase& one : out.cases) {
    experiment::Request request = case_request(arguments, one.network, one.strategy, machine);
    request.profile = second.path();
    one.run = experiment::run_plan(experiment::Experiment(request), one.planned);
  }
  return out;
}

report::MeasuredValidation compare_cases(const std::vector<HardwareCase>& cases,
                                         const Measurements& measurements,
                                         std::vector<validation::Unresolved> unresolved) {
  report::MeasuredValidation out;
  out.machine = measurements.machine;
  std::vector<validation::Claim> claims;
  std::map<std::pair<std::string, std::string>, double> predictions;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const HardwareCase& one = cases[i];
    const Measurement& run = measurements.runs.at(i);
    if (!run.error.empty()) {
      unresolved.push_back({one.network, one.strategy, run.error});
      continue;
    }
    validation::Claim claim;
    claim.set = one.network;
    claim.name = one.strategy;
    claim.unit = "s";
    claim.expected = run.step.median.count();
    claim.source = report::machine_line(measurements.machine);
    const double predicted = one.run.result.step_time.count();
    predictions[{claim.set, claim.name}] = predicted;
    const validation::ClassTimes times =
        validation::class_times(one.run.dag, one.run.timeline, run.timeline);
    claim.reason = validation::largest_gap(times);
    for (const auto& [name, both] : times) {
      out.classes.push_back({one.network, one.strategy, name, both.first, both.second});
    }
    out.steps.push_back({run.step, run.step_with_events.median});
    claims.push_back(std::move(claim));
  }
  out.validation = validation::validate_claims(
      claims, [&](const validation::Claim& claim) -> validation::Prediction {
        return {predictions.at({claim.set, claim.name}), std::nullopt, {}};
      });
  out.validation.unresolved = std::move(unresolved);
  return out;
}

/// What was measured, with its prediction.
std::vector<report::BothTimelines> both_timelines(const std::vector<HardwareCase>& cases,
                                                  const Measurements& measurements) {
  std::vector<report::BothTimelines> steps;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const experiment::Run& run = cases[i].run;
    const Measurement& measured = measurements.runs.at(i);
    if (!measured.error.empty() || measured.timeline.spans.size() != run.dag.size()) continue;
    const Cluster& cluster = measurements.machine.cluster;
    steps.push_back({fmt::format("{}: {}", cases[i].network, cases[i].strategy),
                     report::side_by_side(report::bars_of(run.dag, run.timeline, cluster),
                                          report::bars_of(run.dag, measured.timeline, cluster))});
  }
  return steps;
}

report::InputsText inputs_of(const Arguments& arguments) {
  return report::inputs_of(experiment::read_options(arguments));
}

template <class Value>
Outcome refused(const Arguments& arguments, const Answer<Value>& answer) {
  const std::string& reason = answer.refusal;
  report::MeasuredValidation nothing;
  nothing.refusal = reason;
  std::vector<std::string> networks = arguments.texts("--network");
  if (networks.empty()) networks.emplace_back("alexnet");
  for (const std::string& network : networks) {
    for (const std::string& name : strategies_for(arguments)) {
      nothing.validation.unresolved.push_back({network, name, reason});
    }
  }
  Outcome outcome;
  outcome.document.head = {"nothing was measured: " + reason};
  outcome.document.tables = {report::measured_rows({})};
  outcome.document.json = report::measured_json(nothing, inputs_of(arguments));
  outcome.exit_code = answer.exit_code;
  return outcome;
}

/// What a profile says of the machine besides times of operations.
void add_machine_facts(const Profile& profile, std::vector<std::string>& lines) {
  if (profile.launch.samples > 0) {
    lines.push_back(fmt::format("a launch every {}", to_text(profile.launch.median)));
  }
  for (const LinkFit& link : profile.links) {
    const std::vector<Device>& devices = profile.machine.cluster.devices;
    lines.push_back(fmt::format("{} to {}: {} and {}; off by {:.1f} % at most",
                                devices.at(link.from.index()).name,
                                devices.at(link.to.index()).name, to_text(link.latency),
                                to_text(link.rate), 100 * link.largest_error));
  }
  for (const CommonMemory& memory : profile.common_memory) {
    lines.push_back(experiment::common_memory_text(memory, profile.machine.cluster) +
                    (memory.limits() ? "" : ": enough for all"));
  }
  if (profile.interference_samples.empty()) return;
  const std::vector<std::string> texts = experiment::interference_texts(profile.interference);
  lines.push_back(texts.empty() ? "kernels and communication do not slow each other down"
                                : "slowdown by interference: " + join(texts));
}

/// The profile written, or why there is none.
struct CalibrateRow {
  std::optional<std::string> path{};
  Profile profile{};
  std::optional<std::string> reason{};
  report::InputsText inputs{};
};
void fields(auto& visit, json::Of<CalibrateRow> auto& row) {
  const auto count = [&](const auto& list) {
    return row.path ? std::optional(list.size()) : std::nullopt;
  };
  visit("profile", row.path);
  visit("kernels", count(row.profile.kernels), report::any_count);
  visit("memory", count(row.profile.memory), report::any_count);
  visit("messages", count(row.profile.messages), report::any_count);
  visit("reason", row.reason);
  visit("version", report::version());
  visit("inputs", row.inputs);
}

}  // namespace

std::string calibrate_schema() {
  return json::schema_of_file<CalibrateRow>("What parsim calibrate --json prints");
}

Outcome run_validate_hardware(const Arguments& arguments) {
  for (const std::string_view flag :
       {"--papers", "--published", "--data", "--from-scratch", "--quick"}) {
    if (!arguments.has(flag)) continue;
    throw InputError("--hw", fmt::format("given together with {}", flag),
                     "accepted: one of the two");
  }
  const experiment::HardwareRequest hardware =
      experiment::hardware_request(experiment::read_options(arguments));
  const Answer<Machine> here = experiment::probe_hardware(hardware);
  if (!here.value) return refused(arguments, here);
  std::vector<validation::Unresolved> unresolved;
  std::vector<HardwareCase> cases;
  if (arguments.has("--profile")) {
    cases = predict_cases(arguments, *here.value, {}, unresolved);
  } else {
    Calibrated calibrated = calibrated_cases(arguments, hardware, *here.value, unresolved);
    if (!calibrated.profile.value) return refused(arguments, calibrated.profile);
    cases = std::move(calibrated.cases);
  }
  const Answer<Measurements> measurements =
      experiment::measure_on_hardware(hardware, dags_of(cases));
  if (!measurements.value) return refused(arguments, measurements);
  const report::MeasuredValidation measured = compare_cases(cases, *measurements.value, unresolved);

  Outcome outcome;
  report::Document& document = outcome.document;
  document.head = {"measured on " + report::machine_line(measurements.value->machine),
                   "predicted with " + (arguments.has("--profile")
                                            ? "the profile " + *arguments.text("--profile")
                                            : std::string("a calibration made just before"))};
  document.tables = {report::measured_rows(measured.validation.rows)};
  for (const validation::ValidationSet& set : measured.validation.sets) {
    document.notes.push_back(
        fmt::format("{}: error mean {:.1f} %, largest {:.1f} %; rank correlation of strategies {}",
                    set.name, 100 * set.mean_error, 100 * set.max_error,
                    set.spearman ? three_digits(*set.spearman) : "-"));
  }
  for (const validation::Unresolved& item : measured.validation.unresolved) {
    document.notes.push_back(
        fmt::format("not measured: {}: {}: {}", item.set, item.name, item.reason));
  }
  document.notes.emplace_back(
      "largest difference: the class of operations whose times, added up over all devices, differ "
      "most");
  document.json = report::measured_json(measured, inputs_of(arguments));
  if (arguments.has("--report")) {
    outcome.timelines = report::draw_both(both_timelines(cases, *measurements.value),
                                          measurements.value->machine.cluster);
  }
  const bool any = !measured.validation.rows.empty();
  const bool lacks_memory =
      std::any_of(measurements.value->runs.begin(), measurements.value->runs.end(),
                  [](const Measurement& run) { return !run.fits; });
  if (!any && lacks_memory) outcome.exit_code = ExitCode::does_not_fit;
  return outcome;
}

Outcome run_calibrate(const Arguments& arguments) {
  const std::string path = arguments.text("-o").value_or("");
  if (path.empty()) {
    throw InputError("-o", arguments.has("-o") ? "the name is empty" : "missing",
                     "accepted: the name of a file to write");
  }
  const experiment::Request request = experiment::read_options(arguments);
  const experiment::HardwareRequest hardware = experiment::hardware_request(request);
  OutputFile file(path, "-o");
  Outcome outcome;
  report::Document& document = outcome.document;
  const auto refuse = [&](const auto& answer) {
    document.head = {"nothing was measured: " + answer.refusal};
    document.json =
        report::result_text(CalibrateRow{{}, {}, answer.refusal, report::inputs_of(request)});
    outcome.exit_code = answer.exit_code;
  };
  const Answer<Machine> here = experiment::probe_hardware(hardware);
  if (!here.value) {
    refuse(here);
    return outcome;
  }
  std::vector<validation::Unresolved> unresolved;
  const Answer<Profile> profile =
      calibrated_cases(arguments, hardware, *here.value, unresolved).profile;
  if (!profile.value) {
    refuse(profile);
    return outcome;
  }
  file.commit(to_json(*profile.value));
  document.head = {"measured on " + report::machine_line(profile.value->machine),
                   fmt::format("{} kernels, {} copies and updates, {} messages written to {}",
                               profile.value->kernels.size(), profile.value->memory.size(),
                               profile.value->messages.size(), shown_path(path))};
  add_machine_facts(*profile.value, document.head);
  for (const validation::Unresolved& item : unresolved) {
    document.notes.push_back(
        fmt::format("not planned: {}: {}: {}", item.set, item.name, item.reason));
  }
  document.json =
      report::result_text(CalibrateRow{path, *profile.value, {}, report::inputs_of(request)});
  return outcome;
}

}  // namespace parsim::app
