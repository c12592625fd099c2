#include "core/json.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "experiment/attention.hpp"
#include "experiment/communication.hpp"
#include "report/runs.hpp"
#include "sim/sim.hpp"

namespace parsim::report {

namespace {

using Json = nlohmann::ordered_json;

/// Names may hold bytes that are no UTF-8; they must not stop a report.
std::string text_of(const Json& json) {
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

Json or_null(const std::optional<Seconds>& time) {
  return time ? Json(time->count()) : Json(nullptr);
}

/// The command without options that write files: running it again overwrites nothing.
std::vector<std::string> without_files(const std::vector<std::string>& command) {
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < command.size(); ++i) {
    const std::string flag = command[i].substr(0, command[i].find('='));
    const bool writes = std::any_of(experiment::options().begin(), experiment::options().end(),
                                    [&](const experiment::Option& option) {
                                      return option.flag == flag && option.writes_file();
                                    });
    if (writes && flag == command[i]) ++i;  // its value is the next word
    if (!writes && flag != "--no-timeline") kept.push_back(command[i]);
  }
  return kept;
}

/// What the row of each option of the verb records, and what was found out for it; `experiment` may
/// be null.
Json inputs(const experiment::Request& request, const experiment::Experiment* experiment) {
  Json json = {{"command", without_files(request.command)}, {"verb", request.verb}};
  if (!request.collective.kind.empty()) json["kind"] = request.collective.kind;
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
    json["simgrid"] = {{"version", sim::simgrid_version()}, {"settings", sim::simgrid_settings()}};
  }
  return json;
}

Json device_json(const experiment::DeviceResult& device) {
  Json json;
  json["name"] = device.name;
  json["model"] = device.model;
  json["compute_s"] = device.use.compute.count();
  json["exposed_communication_s"] = device.use.exposed_communication.count();
  json["idle_s"] = device.use.idle.count();
  json["peak_memory_bytes"] = device.peak().value;
  json["memory_bytes"] = device.capacity.value;
  json["lacking_memory_bytes"] = device.lacking().value;
  json["headroom_bytes"] = device.headroom.of(device.capacity).value;
  json["verdict"] = to_text(device.verdict());
  json["memory"] = {{"weights_bytes", device.memory.weights.value},
                    {"gradients_bytes", device.memory.gradients.value},
                    {"optimizer_state_bytes", device.memory.optimizer_state.value},
                    {"activations_bytes", device.memory.activations.value},
                    {"communication_bytes", device.memory.communication.value}};
  return json;
}

Json costs_json(const experiment::RunResult& result) {
  Json json;
  for (const Origin origin : origins) {
    json[to_text(origin)] = result.cost_shares[static_cast<std::size_t>(origin)];
  }
  json["summary"] = result.cost_summary;
  json["accuracy"] = result.cost_accuracy;
  return json;
}

Json communication_json(const experiment::RunResult& result) {
  if (!result.communication) return nullptr;
  const sim::CommunicationSources& sources = *result.communication;
  return {{"measured", sources.measured}, {"library", sources.library}, {"links", sources.links}};
}

Json spread_json(const Spread& spread) {
  return {{"median_s", spread.median.count()},
          {"lower_quartile_s", spread.low.count()},
          {"upper_quartile_s", spread.high.count()},
          {"samples", spread.samples}};
}

/// A row of a strategy without a plan has the same keys, with null for missing values.
Json row_json(const experiment::RunResult& result) {
  Json json;
  json["strategy"] = result.strategy;
  json["step_time_s"] = result.step_time.count();
  json["throughput_samples_per_s"] = result.samples_per_second;
  json["bytes_moved"] = result.moved.value;
  json["messages"] = result.messages;
  json["operations"] = result.operations;
  json["simulated_operations"] = result.simulated_operations;
  json["engine"] = result.engine ? Json(to_text(*result.engine)) : Json(nullptr);
  json["devices"] = Json::array();
  for (const experiment::DeviceResult& device : result.devices) {
    json["devices"].push_back(device_json(device));
  }
  json["fits"] = result.fits();
  json["verdict"] = to_text(result.verdict());
  json["headroom_bytes"] = nullptr;
  if (const experiment::DeviceResult* fullest = result.fullest()) {
    json["headroom_bytes"] = fullest->headroom.of(fullest->capacity).value;
  }
  json["bottleneck"] = {
      {"link", nullptr}, {"from", nullptr}, {"to", nullptr}, {"utilisation", 0.0}};
  if (result.bottleneck) {
    json["bottleneck"] = {{"link", result.bottleneck->link},
                          {"from", result.bottleneck->from},
                          {"to", result.bottleneck->to},
                          {"utilisation", result.bottleneck->utilisation}};
  }
  json["search_time_s"] = or_null(result.search_time);
  json["simulation_time_s"] = or_null(result.simulation_time);
  json["cost_sources"] = costs_json(result);
  json["communication_sources"] = communication_json(result);
  json["bounds"] = {{"critical_path_s", result.bounds.critical_path.count()},
                    {"busiest_device_s", result.bounds.busiest_device.count()},
                    {"busiest_link_s", result.bounds.busiest_link.count()}};
  if (result.jittered) json["jittered"] = spread_json(*result.jittered);
  json["notes"] = result.notes;
  json["error"] = nullptr;
  if (result.error.empty()) return json;
  for (auto& [key, value] : json.items()) {
    if (key != "strategy" && key != "devices") value = nullptr;
  }
  json["fits"] = false;
  json["notes"] = Json::array();
  json["error"] = result.error;
  return json;
}

Json scaling_json(const experiment::Scaling& scaling) {
  Json json = Json::array();
  for (const experiment::ScalingPoint& point : scaling.points) {
    Json row;
    row["gpus"] = point.gpus;
    row["batch"] = point.batch;
    row["strategy"] = point.strategy;
    row["throughput_samples_per_s"] =
        point.samples_per_second ? Json(*point.samples_per_second) : Json(nullptr);
    row["speedup"] = point.speedup ? Json(*point.speedup) : Json(nullptr);
    row["fits"] = point.fits;
    json.push_back(std::move(row));
  }
  return json;
}

Json result_json(const experiment::Experiment& experiment, const experiment::RunResult& result,
                 const Json& shared) {
  Json json = row_json(result);
  json["warnings"] = experiment.warnings;
  for (const std::string& warning : experiment::communication_warnings(result)) {
    json["warnings"].push_back(warning);
  }
  json["seed"] = experiment.request.seed;
  json["version"] = version();
  json["inputs"] = shared;
  return json;
}

}  // namespace

std::string version() { return PARSIM_VERSION; }

std::string with_inputs(const std::string& json, const experiment::Request& request) {
  Json result = Json::parse(json);
  result["version"] = version();
  result["inputs"] = inputs(request, nullptr);
  return text_of(result);
}

std::string inputs_json(const experiment::Experiment& experiment) {
  return text_of(inputs(experiment.request, &experiment));
}

std::string simulation_json(const experiment::Experiment& experiment,
                            const experiment::RunResult& result, const std::string& advice) {
  Json json = result_json(experiment, result, inputs(experiment.request, &experiment));
  if (!advice.empty()) json["advice"] = advice;
  return text_of(json);
}

std::string comparison_json(const experiment::Experiment& experiment,
                            const std::vector<experiment::RunResult>& results,
                            const std::string& best, const experiment::Scaling* scaling,
                            const std::string& advice) {
  const Json shared = inputs(experiment.request, &experiment);
  Json json = {{"results", Json::array()}, {"best", best.empty() ? Json(nullptr) : Json(best)}};
  if (!advice.empty()) json["advice"] = advice;
  if (scaling != nullptr) json["scaling"] = scaling_json(*scaling);
  for (const experiment::RunResult& result : results) {
    json["results"].push_back(result_json(experiment, result, shared));
  }
  return text_of(json);
}

std::string plan_summary_json(const experiment::Experiment& experiment,
                              const experiment::Planned& planned, const std::string& plan_path,
                              const std::string& dag_path) {
  Json json;
  json["strategy"] = planned.plan.strategy;
  json["micro_batches"] = planned.plan.schedule.micro_batches;
  json["plan_file"] = plan_path.empty() ? Json(nullptr) : Json(plan_path);
  json["dag_file"] = dag_path.empty() ? Json(nullptr) : Json(dag_path);
  json["search_time_s"] =
      experiment.request.timings ? Json(planned.search_time.count()) : Json(nullptr);
  json["notes"] = planned.plan.notes;
  json["warnings"] = experiment.warnings;
  json["seed"] = experiment.request.seed;
  json["version"] = version();
  json["inputs"] = inputs(experiment.request, &experiment);
  return text_of(json);
}

}  // namespace parsim::report
