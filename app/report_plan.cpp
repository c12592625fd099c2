#include <fmt/format.h>

#include <set>

#include "app/report_runs.hpp"
#include "core/json.hpp"

namespace parsim {

namespace {

/// "sample 4 x channel 2", or "whole".
std::string cuts_text(const LayerPlan& layer) {
  std::vector<std::string> words;
  for (const Cut& cut : layer.cuts) {
    words.push_back(fmt::format("{} {}", to_text(cut.dim), cut.sizes.size()));
  }
  return words.empty() ? "whole" : join(words, " x ");
}

/// "gpu0, gpu1" or "gpu0 … gpu7 (8)".
std::string devices_text(const LayerPlan& layer, const Cluster& cluster) {
  const std::set<DeviceId> distinct(layer.devices.begin(), layer.devices.end());
  std::vector<std::string> names;
  for (const DeviceId device : distinct) names.push_back(cluster[device].name);
  constexpr std::size_t listed = 4;
  if (names.size() <= listed) return join(names);
  return fmt::format("{} … {} ({})", names.front(), names.back(), names.size());
}

}  // namespace

Document report_plan(const Scene& scene, const Planned& planned, const std::string& plan_path,
                     const std::string& dag_path) {
  const Plan& plan = planned.plan;
  std::vector<std::string> layers;
  std::vector<std::string> cuts;
  std::vector<std::string> devices;
  std::vector<TableCell> stages;
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    layers.push_back(scene.network.layers[i].name);
    cuts.push_back(cuts_text(plan.layers[i]));
    devices.push_back(devices_text(plan.layers[i], scene.cluster));
    const std::vector<std::int32_t>& stage = plan.schedule.stage_of_layer;
    stages.push_back(TableCell::word(std::to_string(i < stage.size() ? stage[i] : 0)));
  }
  Table table;
  add_words(table, "layer", "layer", layers);
  add_words(table, "cuts", "cuts", cuts);
  add_words(table, "devices", "devices", devices);
  add_column(table, {"stage", "stage"}, std::move(stages));

  Document document;
  document.head = {fmt::format("{} of {} on {}, batch {} in {} micro-batches", plan.strategy,
                               scene.network.name, scene.cluster.name, plan.batch,
                               plan.schedule.micro_batches)};
  document.tables = {std::move(table)};
  document.notes = plan.notes;
  document.warnings = scene.warnings;
  if (!plan_path.empty()) document.notes.push_back("plan written to " + plan_path);
  if (!dag_path.empty()) document.notes.push_back("execution DAG written to " + dag_path);
  document.json = plan_path.empty() && dag_path.empty()
                      ? to_json(plan)
                      : plan_summary_json(scene, planned, plan_path, dag_path);
  return document;
}

}  // namespace parsim
