#include <fmt/format.h>

#include <set>

#include "core/files.hpp"
#include "core/json.hpp"
#include "core/text.hpp"
#include "report/degrees.hpp"
#include "report/runs.hpp"

namespace parsim::report {

namespace {

std::string predicted_step(const LaunchResult& launch) {
  if (!launch.planned) return to_text(launch.step);
  return fmt::format("{} ({} with {})", to_text(launch.step), to_text(*launch.planned),
                     launch.planned_with);
}

}  // namespace

std::string prediction_text(const LaunchResult& launch) {
  std::string text =
      fmt::format("\nPredicted by parsim, not measured: {} a step.\n", predicted_step(launch));
  if (!launch.lacks.empty())
    text += fmt::format("Predicted to run out of memory: it {}.\n", launch.lacks);
  if (!launch.launch.not_carried.empty()) text += "These files do not carry:\n\n";
  for (const std::string& line : launch.launch.not_carried) text += "- " + line + "\n";
  return text;
}

std::string devices_text(const LayerPlan& layer, const Cluster& cluster) {
  std::set<DeviceId> seen;
  std::vector<std::string> names;  // in the order of the parts
  for (const DeviceId device : layer.devices) {
    if (seen.insert(device).second) names.push_back(cluster[device].name);
  }
  constexpr std::size_t listed = 4;
  if (names.size() <= listed) return join(names);
  return fmt::format("{} … {} ({})", names.front(), names.back(), names.size());
}

Document report_plan(const experiment::Experiment& experiment, const experiment::Planned& planned,
                     const PlanFiles& files) {
  const Plan& plan = planned.plan;
  Document document;
  document.head = {
      fmt::format("{}: {} on {}, batch {} in {}", plan.strategy, experiment.network.name,
                  experiment.cluster.name, plan.batch,
                  counted(plan.schedule.micro_batches, "micro-batch")),
      "plan: " + strategies::short_text(strategies::degrees_of(experiment.network, plan))};
  document.tables = {stage_table(experiment.network, experiment.cluster, plan)};
  document.notes = plan.notes;
  for (const std::string& note : experiment.request.notes) document.notes.push_back(note);
  document.warnings = experiment.warnings;
  if (!files.plan.empty()) document.notes.push_back("plan written to " + shown_path(files.plan));
  if (!files.dag.empty())
    document.notes.push_back("execution DAG written to " + shown_path(files.dag));
  if (!files.hgr.empty())
    document.notes.push_back("hypergraph written to " + shown_path(files.hgr));
  if (!files.smpi.empty()) {
    document.notes.push_back(fmt::format(
        "step of {} on {} written to {}; in this folder, replay it with: smpirun -platform "
        "platform.xml -hostfile hostfile -replay traces.txt",
        counted(static_cast<std::int64_t>(files.smpi_ranks), "MPI rank"),
        counted(static_cast<std::int64_t>(files.smpi_hosts), "host"), files.smpi));
  }
  if (!files.chakra.empty()) document.notes.push_back(files.chakra_text);
  if (files.launch) {
    const LaunchResult& launch = *files.launch;
    document.notes.push_back(fmt::format("to start {}: see {}/README.md; predicted step {}",
                                         name_of(launch.trainer), launch.folder,
                                         predicted_step(launch)));
    if (!launch.lacks.empty()) {
      document.notes.push_back(
          fmt::format("this plan {}: --recompute, --zero and more --micro-batches take less, and "
                      "--strategy best chooses them",
                      launch.lacks));
    }
    for (const std::string& line : launch.launch.not_carried) {
      document.notes.push_back("not carried: " + line);
    }
  }
  document.json = files.any() ? plan_summary_json(experiment, planned, files) : to_json(plan);
  return document;
}

}  // namespace parsim::report
