#include <fmt/format.h>

#include <set>

#include "core/json.hpp"
#include "core/text.hpp"
#include "experiment/explain.hpp"
#include "experiment/files.hpp"
#include "report/runs.hpp"

namespace parsim::report {

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
                     const std::string& plan_path, const std::string& dag_path) {
  const Plan& plan = planned.plan;
  std::vector<std::string> layers;
  std::vector<std::string> cuts;
  std::vector<std::string> devices;
  std::vector<TableCell> stages;
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    layers.push_back(experiment.network.layers[i].name);
    cuts.push_back(experiment::split_text(plan.layers[i]));
    devices.push_back(devices_text(plan.layers[i], experiment.cluster));
    const std::vector<std::int32_t>& stage = plan.schedule.stage_of_layer;
    stages.push_back(TableCell::word(std::to_string(i < stage.size() ? stage[i] : 0)));
  }
  Table table;
  add_words(table, "layer", "layer", layers);
  add_words(table, "cuts", "cuts", cuts);
  add_words(table, "devices", "devices", devices);
  add_column(table, {"stage", "stage"}, std::move(stages));

  Document document;
  document.head = {fmt::format("{}: {} on {}, batch {} in {}", plan.strategy,
                               experiment.network.name, experiment.cluster.name, plan.batch,
                               counted(plan.schedule.micro_batches, "micro-batch"))};
  document.tables = {std::move(table)};
  document.notes = plan.notes;
  document.warnings = experiment.warnings;
  if (!plan_path.empty())
    document.notes.push_back("plan written to " + experiment::shown_path(plan_path));
  if (!dag_path.empty())
    document.notes.push_back("execution DAG written to " + experiment::shown_path(dag_path));
  document.json = plan_path.empty() && dag_path.empty()
                      ? to_json(plan)
                      : plan_summary_json(experiment, planned, plan_path, dag_path);
  return document;
}

}  // namespace parsim::report
