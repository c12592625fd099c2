#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/errors.hpp"
#include "report/context.hpp"
#include "report/degrees.hpp"
#include "report/page/drawings.hpp"
#include "report/page/html.hpp"
#include "report/runs.hpp"

namespace parsim::report {

namespace {

/// "16 x a100-sxm4-40, 16 x v100-sxm2-32": the devices, each once.
std::string types_of(const Cluster& cluster, std::vector<DeviceId> devices) {
  std::sort(devices.begin(), devices.end());
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  return html(device_mix(cluster, devices), 200);
}

/// The layer of a stage whose samples are divided among most devices; nothing if none is.
const LayerPlan* by_samples(const Plan& plan, const strategies::StageSummary& stage) {
  const LayerPlan* found = nullptr;
  std::size_t most = 1;
  for (const LayerId layer : stage.layers) {
    for (const Cut& cut : plan.layers[layer.index()].cuts) {
      if (cut.dim != Dim::sample || cut.sizes.size() <= most) continue;
      most = cut.sizes.size();
      found = &plan.layers[layer.index()];
    }
  }
  return found;
}

/// "2 of a micro-batch's 4 samples per replica; its 2 GPUs share them", "41 of the batch's 256
/// samples on each v100-sxm2, 23 on each p100-sxm2", "all 4 samples of a micro-batch".
std::string samples_of(const Cluster& cluster, const Plan& plan,
                       const strategies::StageSummary& stage) {
  const std::int64_t all = plan.batch / plan.schedule.micro_batches;
  const bool one = plan.schedule.micro_batches == 1;
  const std::int64_t sharing = stage.tp.value_or(1) * stage.cp.value_or(1);
  const std::string whole =
      fmt::format("{} {} samples", one ? "the batch's" : "a micro-batch's", all);
  const std::string shared = sharing > 1
                                 ? fmt::format("; {}{} GPUs share {}", stage.dp == 1 ? "" : "its ",
                                               sharing, stage.micro_batch == 1 ? "it" : "them")
                                 : "";
  const LayerPlan* const layer = by_samples(plan, stage);
  if (layer == nullptr || stage.micro_batch == all) {
    return fmt::format("all {} of {}{}", counted(all, "sample"),
                       one ? "the batch" : "a micro-batch", shared);
  }
  // Layers without weights may be divided further, by samples, among the GPUs of a replica.
  if (stage.micro_batch && stage.tp) {
    return fmt::format("{} of {} per replica{}", *stage.micro_batch, whole, shared);
  }
  std::size_t after = 1;  // cells of a part of the samples that follow one another
  const std::vector<std::int64_t>* sizes = nullptr;
  for (const Cut& cut : layer->cuts) {
    if (sizes != nullptr) after *= cut.sizes.size();
    if (cut.dim == Dim::sample) sizes = &cut.sizes.items();
  }
  std::set<std::pair<std::int64_t, std::string>> counts;  // negative, for the largest first
  std::set<std::int64_t> numbers;
  for (std::size_t cell = 0; cell < layer->devices.size(); ++cell) {
    const std::int64_t samples = (*sizes)[cell / after % sizes->size()];
    if (samples == 0) continue;  // the device has no part in the stage
    counts.emplace(-samples, cluster.model(layer->devices[cell]).name);
    numbers.insert(samples);
  }
  if (numbers.size() == 1) return fmt::format("{} of {} on each GPU", *numbers.begin(), whole);
  std::vector<std::string> words;
  for (const auto& [samples, model] : counts) {
    words.push_back(fmt::format("{}{} on each {}", -samples, words.empty() ? " of " + whole : "",
                                html_name(model)));
  }
  return join(words);
}

/// What a stage is, without its number.
std::string box_of(const Network& network, const Cluster& cluster, const Plan& plan,
                   const strategies::StageSummary& stage) {
  const std::string blocks = blocks_text(stage);
  std::string out =
      blocks.empty()
          ? fmt::format("<p>{}", html(layer_ranges(network, stage.layers), 90))
          : fmt::format("<p>{} {}",
                        blocks.find_first_of("-,") == std::string::npos ? "block" : "blocks",
                        blocks);
  out += "<p>" + types_of(cluster, stage.devices);
  std::vector<std::string> degrees;
  if (stage.tp) degrees.push_back(fmt::format("tp {}", *stage.tp));
  if (stage.dp) degrees.push_back(fmt::format("dp {}", *stage.dp));
  if (stage.cp.value_or(1) > 1) degrees.push_back(fmt::format("cp {}", *stage.cp));
  out += "<p>" + (degrees.empty() ? "degrees differ from layer to layer" : join(degrees));
  return out + "<p class=soft>" + samples_of(cluster, plan, stage);
}

/// Layers that follow one another with the same split over the same devices.
std::string split_table(const Network& network, const Cluster& cluster, const Plan& plan) {
  constexpr std::size_t most_rows = 12;
  const Table table = stage_table(network, cluster, plan);
  std::string out =
      "<details><summary>how layers are split</summary><div class=scroll><table>"
      "<thead><tr>";
  for (const Column& column : table.columns) out += "<th>" + html(column.title);
  out += "<tbody>\n";
  for (std::size_t r = 0; r < std::min(table.rows.size(), most_rows); ++r) {
    out += "<tr>";
    for (const TableCell& cell : table.rows[r]) out += "<td>" + html(cell.text, 100);
    out += "\n";
  }
  out += "</table></div>";
  if (table.rows.size() > most_rows) {
    out += fmt::format("<p class=key>{} more rows: <code>parsim plan --strategy {}</code></p>",
                       table.rows.size() - most_rows, html_name(plan.strategy));
  }
  return out + "</details>\n";
}

}  // namespace

std::string draw_stages(const Network& network, const Cluster& cluster, const Plan& plan,
                        const experiment::RunResult& result) {
  const std::vector<strategies::StageSummary>& stages = result.stages;
  std::string out = "<ol class=stages>\n";
  bool mixed = false;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    mixed |= !stages[s].dp;
    const std::string title =
        stages.size() == 1 ? std::string("all layers") : fmt::format("stage {}", s);
    out += fmt::format("<li><b>{}</b>{}\n", title, box_of(network, cluster, plan, stages[s]));
  }
  out += "</ol>\n";
  return mixed ? out + split_table(network, cluster, plan) : out;
}

}  // namespace parsim::report
