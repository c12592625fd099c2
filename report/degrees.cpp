#include "report/degrees.hpp"

#include <fmt/format.h>

#include <utility>

#include "core/text.hpp"
#include "experiment/explain.hpp"
#include "report/runs.hpp"

namespace parsim::report {

namespace {

std::string number_text(const std::optional<std::int64_t>& number) {
  return number ? std::to_string(*number) : std::string("-");
}

}  // namespace

std::vector<StageRow> stage_rows(const std::vector<strategies::StageSummary>& stages,
                                 const Network& network, const Cluster& cluster) {
  std::vector<StageRow> rows;
  for (const strategies::StageSummary& stage : stages) {
    StageRow& row = rows.emplace_back();
    if (std::string blocks = blocks_text(stage); !blocks.empty()) row.blocks = std::move(blocks);
    row.layers = layer_ranges(network, stage.layers);
    for (const DeviceId device : stage.devices) row.devices.push_back(cluster[device].name);
    row.tp = stage.tp;
    row.cp = stage.cp;
    row.dp = stage.dp;
  }
  return rows;
}

std::string blocks_text(const strategies::StageSummary& stage) {
  if (!stage.blocks) return {};
  std::vector<std::string> ranges;
  for (const Interval range : *stage.blocks) {
    ranges.push_back(range.size() == 1 ? std::to_string(range.begin)
                                       : fmt::format("{}-{}", range.begin, range.end - 1));
  }
  return join(ranges);
}

std::string layer_ranges(const Network& network, const std::vector<LayerId>& layers) {
  std::vector<std::string> ranges;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const std::size_t first = l;
    while (l + 1 < layers.size() && layers[l + 1].value == layers[l].value + 1) ++l;
    const std::string& from = network[layers[first]].name;
    ranges.push_back(first == l ? from : fmt::format("{} - {}", from, network[layers[l]].name));
  }
  return join(ranges);
}

Table stage_table(const Network& network, const Cluster& cluster, const Plan& plan) {
  std::vector<std::string> numbers, layers, tp, dp, cuts, devices;
  const std::vector<strategies::StageSummary> stages = strategies::stages_of(network, plan);
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const strategies::StageSummary& stage = stages[s];
    const auto add = [&](const std::string& which, const std::string& how, const LayerPlan& like) {
      numbers.push_back(std::to_string(s));
      layers.push_back(which);
      tp.push_back(number_text(stage.tp));
      dp.push_back(number_text(stage.dp));
      cuts.push_back(how);
      devices.push_back(devices_text(like, cluster));
    };
    if (stage.dp) {
      const std::string blocks = blocks_text(stage);
      LayerPlan all;
      all.devices = stage.devices;
      add(blocks.empty() ? layer_ranges(network, stage.layers) : "blocks " + blocks, "-", all);
      continue;
    }
    for (std::size_t l = 0; l < stage.layers.size(); ++l) {
      const LayerPlan& like = plan.layers[stage.layers[l].index()];
      std::vector<LayerId> range{stage.layers[l]};
      const auto alike = [&](LayerId id) {
        const LayerPlan& other = plan.layers[id.index()];
        return experiment::split_text(other) == experiment::split_text(like) &&
               other.devices == like.devices;
      };
      while (l + 1 < stage.layers.size() && alike(stage.layers[l + 1])) {
        range.push_back(stage.layers[++l]);
      }
      add(layer_ranges(network, range), experiment::split_text(like), like);
    }
  }
  Table table;
  add_words(table, "stage", "stage", numbers);
  add_words(table, "layers", "layers", layers);
  add_words(table, "tp", "tp", tp);
  add_words(table, "dp", "dp", dp);
  add_words(table, "cuts", "cuts", cuts);
  add_words(table, "devices", "devices", devices);
  return table;
}

}  // namespace parsim::report
