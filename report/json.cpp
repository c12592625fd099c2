#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "experiment/attention.hpp"
#include "experiment/communication.hpp"
#include "report/gained.hpp"
#include "report/result_rows.hpp"
#include "report/runs.hpp"
#include "sim/sim.hpp"

namespace parsim::report {

namespace {

using Json = nlohmann::ordered_json;

/// Names may hold bytes that are no UTF-8; they must not stop a report.
std::string text_of(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

constexpr Rule advice_meaning{"options that would fit in memory, if nothing fits"};

/// The command without options that write files, so that running it again overwrites nothing, and
/// without --jobs, which changes no byte.
std::vector<std::string> repeatable(const std::vector<std::string>& command) {
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const std::string flag = command[i].substr(0, command[i].find('='));
    const bool writes = std::any_of(experiment::options().begin(), experiment::options().end(),
                                    [&](const experiment::Option& option) {
                                      return option.flag == flag && option.writes_file();
                                    });
    const bool left_out = writes || flag == "--jobs";
    if (left_out && flag == command[i]) ++i;  // its value is the next word
    if (!left_out && flag != "--no-timeline") kept.push_back(command[i]);
  }
  return kept;
}

/// What the row of each option of the verb records, and what was found out for it; `experiment` may
/// be null.
Json inputs(const experiment::Request& request, const experiment::Experiment* experiment) {
  Json json = {{"command", repeatable(request.command)}, {"verb", request.verb}};
  if (!request.collective.kind.empty()) json["kind"] = request.collective.kind;
  if (!request.trace.empty()) json["trace"] = request.trace;
  const bool planned = experiment != nullptr && experiment->plan;
  for (const experiment::Option& option : experiment::options()) {
    if (option.key.empty() || !option.is_for(request.verb)) continue;
    if (planned && !option.is_recorded_with_plan()) continue;
    json[std::string(option.key)] = option.member.json(request, experiment);
  }
  if (experiment != nullptr) {
    const std::optional<std::string> attention = experiment::attention_of(experiment->network);
    json["attention"] =
        attention ? Json{{"kernels", *attention}, {"by_default", experiment->attention_by_default}}
                  : Json(nullptr);
    json["launch_interval_s"] = request.sim.launch_interval.count();
  }
  json["simgrid"] = nullptr;
  if (request.sim.fidelity != sim::Fidelity::analytic && request.sim.engine != sim::Engine::fast) {
    json["simgrid"] = {{"version", sim::find_simgrid().version},
                       {"settings", sim::simgrid_settings()}};
  }
  return json;
}

/// What simulate and compare add for the whole question.
struct SimulationRow {
  RunRow run{};
  std::string advice{};
  std::optional<HardwareRow> hardware{};
};
void fields(auto& visit, json::Of<SimulationRow> auto& row) {
  fields(visit, row.run);
  visit.optional("advice", row.advice, advice_meaning);
  visit.together(std::optional<MeasuredRow>{});  // add_hardware() writes these two
  visit.optional("hardware", row.hardware);
}

struct ScalingRow {
  experiment::ScalingPoint point{};
};
void fields(auto& visit, json::Of<ScalingRow> auto& row) {
  visit("gpus", row.point.gpus, from_one);
  visit("batch", row.point.batch, from_one);
  visit("strategy", row.point.strategy);
  visit("throughput_samples_per_s", row.point.samples_per_second);
  visit("speedup", row.point.speedup,
        "over one GPU's share of the fastest plan on the fewest GPUs on which one fits");
  visit("fits", row.point.fits);
  visit.optional("reason", row.point.reason, "why there is no plan");
}

/// A row of compare.
struct ComparedRow {
  RunRow run{};
};
void fields(auto& visit, json::Of<ComparedRow> auto& row) {
  fields(visit, row.run);
  visit.together(std::optional<MeasuredRow>{});
}

struct MissingRows {
  std::string reason{};
  std::vector<std::string> strategies{};
};
void fields(auto& visit, json::Of<MissingRows> auto& missing) {
  visit("reason", missing.reason);
  visit("strategies", missing.strategies);
}

struct ComparisonRows {
  std::vector<ComparedRow> results{};
  std::optional<std::string> best{};
  std::string advice{};
  std::optional<GainedRow> gained{};
  std::vector<ScalingRow> scaling{};
  std::optional<HardwareRow> hardware{};
  std::optional<MissingRows> missing{};
};
void fields(auto& visit, json::Of<ComparisonRows> auto& rows) {
  visit("results", rows.results);
  visit("best", rows.best, "the fastest that fits, other than strategy best");
  visit.optional("advice", rows.advice, advice_meaning);
  visit.optional("gained", rows.gained, "over the run of --plan or --layout");
  visit.optional("scaling", rows.scaling);
  visit.optional("hardware", rows.hardware);
  visit.optional("missing", rows.missing,
                 "strategies without a row, and why: interrupted, or the time limit");
}

struct LaunchRow {
  Trainer trainer = Trainer::megatron;
  std::vector<std::string> files{}, not_carried{};
  Seconds step{};
};
void fields(auto& visit, json::Of<LaunchRow> auto& row) {
  visit("trainer", row.trainer);
  visit("files", row.files);
  visit("not_carried", row.not_carried, "what the launch files leave out");
  visit("carried_step_time_s", row.step, "predicted");
}

struct PlanRow {
  std::string strategy{};
  std::int64_t micro_batches = 1;
  strategies::Degrees degrees{};
  std::vector<StageRow> stages{};
  std::string plan_id{};
  std::optional<std::string> plan_file{}, dag_file{}, hgr_file{}, smpi_folder{}, chakra_folder{};
  std::optional<LaunchRow> launch{};
  std::optional<Seconds> search_time{};
  std::vector<std::string> notes{}, warnings{};
  std::int64_t seed = 0;
  InputsText inputs{};
};
void fields(auto& visit, json::Of<PlanRow> auto& row) {
  visit("strategy", row.strategy);
  visit("micro_batches", row.micro_batches, from_one);
  visit("degrees", DegreesRow{row.degrees}, degrees_meaning);
  visit("stages", row.stages);
  visit("plan_id", row.plan_id, "equal for equal plans");
  visit("plan_file", row.plan_file);
  visit("dag_file", row.dag_file);
  visit("hgr_file", row.hgr_file);
  visit("smpi_folder", row.smpi_folder);
  visit("chakra_folder", row.chakra_folder);
  visit("launch", row.launch, "null without --launch");
  visit("search_time_s", row.search_time, wall_clock_meaning);
  visit("notes", row.notes);
  visit("warnings", row.warnings);
  visit("seed", row.seed, any_count);
  visit("version", version());
  visit("inputs", row.inputs);
}

AccuracyRow accuracy_row(const experiment::RunResult& result, const experiment::Spreads& spreads) {
  const auto widest = experiment::widest_class(result.parts, spreads);
  return {widest ? std::string(to_text(*widest)) : "host", result.interval,
          fmt::format("{} published rows of {} systems, validation/fit_spreads.py", spreads.rows,
                      spreads.systems)};
}

RunRow run_row(const experiment::Experiment& experiment, const experiment::RunResult& result,
               const InputsText& shared) {
  RunRow row{result,
             accuracy_row(result, experiment.spreads()),
             calibrated_rows(experiment),
             stage_rows(result.stages, experiment.network, experiment.cluster),
             experiment.warnings,
             static_cast<std::int64_t>(experiment.request.seed),
             shared};
  for (std::string& note : question_notes(experiment, result.strategy)) {
    row.result.notes.push_back(std::move(note));
  }
  for (std::string& warning : experiment::communication_warnings(result)) {
    row.warnings.push_back(std::move(warning));
  }
  return row;
}

}  // namespace

std::vector<std::string> question_notes(const experiment::Experiment& experiment,
                                        std::string_view strategy) {
  std::vector<std::string> notes = experiment.request.notes;
  if (experiment.layout && strategy != experiment::layout_strategy().name) {
    const std::vector<std::string>& of_file = experiment.layout->notes;
    std::erase_if(notes, [&](const std::string& note) {
      return std::find(of_file.begin(), of_file.end(), note) != of_file.end();
    });
  }
  return notes;
}

std::string version() { return PARSIM_VERSION; }

std::string build_version() {
  return commit().empty() ? version() : fmt::format("{}+{}", version(), commit());
}

InputsText inputs_of(const experiment::Request& request) {
  return {text_of(inputs(request, nullptr))};
}

std::string inputs_json(const experiment::Experiment& experiment) {
  return text_of(inputs(experiment.request, &experiment));
}

std::string simulation_json(const experiment::Experiment& experiment,
                            const experiment::RunResult& result, const std::string& advice) {
  return result_text(SimulationRow{run_row(experiment, result, {inputs_json(experiment)}), advice});
}

std::string comparison_json(const experiment::Experiment& experiment,
                            const std::vector<experiment::RunResult>& results,
                            const std::string& best, const experiment::Scaling* scaling,
                            const std::string& advice, const Missing& missing) {
  const InputsText shared{inputs_json(experiment)};
  ComparisonRows rows;
  if (!best.empty()) rows.best = best;
  rows.advice = advice;
  rows.gained = gained_row(experiment, results);
  if (scaling != nullptr) {
    for (const experiment::ScalingPoint& point : scaling->points) rows.scaling.push_back({point});
  }
  for (const experiment::RunResult& result : results) {
    rows.results.push_back({run_row(experiment, result, shared)});
  }
  if (!missing.strategies.empty()) rows.missing = {missing.reason, missing.strategies};
  return result_text(rows);
}

std::string plan_summary_json(const experiment::Experiment& experiment,
                              const experiment::Planned& planned, const PlanFiles& files) {
  const auto name = [](const std::string& path) {
    return path.empty() ? std::nullopt : std::optional(path);
  };
  const Plan& plan = planned.plan;
  PlanRow row{plan.strategy,
              plan.schedule.micro_batches,
              strategies::degrees_of(experiment.network, plan),
              stage_rows(strategies::stages_of(experiment.network, plan), experiment.network,
                         experiment.cluster),
              strategies::plan_id(experiment.network, plan),
              name(files.plan),
              name(files.dag),
              name(files.hgr),
              name(files.smpi),
              name(files.chakra),
              {},
              {},
              plan.notes,
              experiment.warnings,
              static_cast<std::int64_t>(experiment.request.seed),
              {inputs_json(experiment)}};
  for (std::string& note : question_notes(experiment, plan.strategy)) {
    row.notes.push_back(std::move(note));
  }
  if (experiment.request.timings) row.search_time = planned.search_time;
  if (files.launch) {
    row.launch = {files.launch->trainer, {}, files.launch->launch.not_carried, files.launch->step};
    for (const LaunchFile& file : files.launch->launch.files) {
      row.launch->files.push_back(files.launch->folder + "/" + file.name);
    }
  }
  return result_text(row);
}

std::string simulate_schema() {
  return json::schema_of_file<SimulationRow>("What parsim simulate --json prints");
}
std::string compare_schema() {
  return json::schema_of_file<ComparisonRows>("What parsim compare --json prints");
}
std::string plan_summary_schema() {
  return json::schema_of_file<PlanRow>("What parsim plan --json prints");
}

}  // namespace parsim::report
