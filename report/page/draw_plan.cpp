#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "experiment/explain.hpp"
#include "report/page/drawings.hpp"
#include "report/page/html.hpp"
#include "report/runs.hpp"

namespace parsim::report {

namespace {

/// The colour of a cut.
std::string_view css_of(Dim dim) {
  switch (dim) {
    case Dim::sample:
      return "ds";
    case Dim::channel:
    case Dim::head:
    case Dim::expert:
      return "dc";
    case Dim::depth:
    case Dim::height:
    case Dim::width:
    case Dim::token:
      return "dh";
    case Dim::in_channel:
      return "di";
    case Dim::replica:
    case Dim::other:
      return "dr";
  }
  return "dr";
}

/// Classes of a layer's real cuts; a layer without any is whole.
std::vector<std::string_view> colours_of(const LayerPlan& layer) {
  std::vector<std::string_view> colours;
  for (const Cut& cut : layer.cuts) {
    if (cut.sizes.size() > 1) colours.push_back(css_of(cut.dim));
  }
  if (colours.empty()) colours.push_back("dw");
  return colours;
}

/// Layers that follow one another with the same split over the same devices.
struct LayerRun {
  std::size_t first = 0, count = 0;
  std::string split, devices;
  std::int32_t stage = 0;
  std::vector<std::string_view> colours;
  std::vector<DeviceId> holders;  ///< sorted, each once
};

std::vector<LayerRun> runs_of(const Cluster& cluster, const Plan& plan) {
  std::vector<LayerRun> runs;
  for (std::size_t i = 0; i < plan.layers.size(); ++i) {
    const LayerPlan& layer = plan.layers[i];
    const std::vector<std::int32_t>& stages = plan.schedule.stage_of_layer;
    const std::int32_t stage = i < stages.size() ? stages[i] : 0;
    const bool same = !runs.empty() && runs.back().stage == stage &&
                      plan.layers[i - 1].devices == layer.devices &&
                      plan.layers[i - 1].cuts == layer.cuts;
    if (same) {
      ++runs.back().count;
      continue;
    }
    LayerRun run{i,
                 1,
                 experiment::split_text(layer),
                 devices_text(layer, cluster),
                 stage,
                 colours_of(layer),
                 layer.devices};
    std::sort(run.holders.begin(), run.holders.end());
    run.holders.erase(std::unique(run.holders.begin(), run.holders.end()), run.holders.end());
    runs.push_back(std::move(run));
  }
  return runs;
}

std::string layer_names(const Network& network, const LayerRun& run) {
  std::string first = html_name(network.layers[run.first].name);
  if (run.count == 1) return first;
  return fmt::format("{} … {} ({})", first,
                     html_name(network.layers[run.first + run.count - 1].name), run.count);
}

/// The cuts of a layer share its height. Neighbouring layers and devices of one colour are one
/// shape.
std::string cells_of(const std::vector<LayerRun>& runs, std::size_t devices) {
  constexpr int height = 12;
  std::map<std::string_view, std::string> paths;
  std::size_t begin = 0;
  while (begin < runs.size()) {
    std::size_t end = begin + 1;
    std::size_t layers = runs[begin].count;
    while (end < runs.size() && runs[end].colours == runs[begin].colours &&
           runs[end].holders == runs[begin].holders) {
      layers += runs[end++].count;
    }
    const std::vector<DeviceId>& holders = runs[begin].holders;
    const auto parts = static_cast<double>(runs[begin].colours.size());
    for (std::size_t h = 0; h < holders.size();) {
      std::size_t next = h + 1;
      while (next < holders.size() && holders[next].value == holders[next - 1].value + 1) ++next;
      // One shape over all neighbouring devices, unless several colours alternate.
      const std::size_t step = parts > 1 ? 1 : next - h;
      for (std::size_t d = h; d < next; d += step) {
        for (std::size_t c = 0; c < runs[begin].colours.size(); ++c) {
          const double y =
              height * (static_cast<double>(holders[d].value) + static_cast<double>(c) / parts);
          paths[runs[begin].colours[c]] +=
              fmt::format("M{} {}h{}v{}h-{}z", runs[begin].first, coordinate(y), layers,
                          coordinate(height * static_cast<double>(step) / parts), layers);
        }
      }
      h = next;
    }
    begin = end;
  }
  std::string out;
  for (const auto& [css, path] : paths) out += fmt::format("<path class={} d=\"{}\"/>", css, path);
  out += "<path class=rule d=\"M0 0";
  for (std::size_t d = 1; d < devices; ++d) {
    out += fmt::format("m0 {}h{}", height, d % 2 == 1 ? 9999 : -9999);
  }
  out += "\"/>";
  return out;
}

}  // namespace

std::string draw_plan(const Network& network, const Cluster& cluster, const Plan& plan) {
  constexpr std::size_t most_rows = 8, most_columns = 64;
  const std::vector<LayerRun> runs = runs_of(cluster, plan);
  std::string out;
  const std::size_t devices = cluster.devices.size();
  if (devices <= most_columns) {
    out += "<div class=plan><pre>";
    for (const Device& device : cluster.devices) out += html(device.name, 24) + "\n";
    out +=
        fmt::format("</pre><svg viewBox=\"0 0 {} {}\" preserveAspectRatio=none height={}>{}</svg>",
                    plan.layers.size(), 12 * devices, 12 * devices, cells_of(runs, devices));
    out +=
        fmt::format("<span></span><p class=ends><span>{}</span><span>{}</span></p></div>",
                    html_name(network.layers.front().name), html_name(network.layers.back().name));
  } else {
    out +=
        fmt::format("<p class=key>not drawn: {} devices (at most {})</p>", devices, most_columns);
  }
  out += fmt::format(
      "<details><summary>layer by layer</summary><div class=scroll><table><thead>"
      "<tr><th>layers<th>split<th>devices<th>stage<tbody>");
  for (std::size_t r = 0; r < std::min(runs.size(), most_rows); ++r) {
    out += fmt::format("<tr><td>{}<td>{}<td>{}<td>{}\n", layer_names(network, runs[r]),
                       html(runs[r].split, 60), html(runs[r].devices, 100), runs[r].stage);
  }
  out += "</table></div>";
  if (runs.size() > most_rows) {
    out += fmt::format("<p class=key>{} more rows: <code>parsim plan --strategy {}</code></p>",
                       runs.size() - most_rows, html_name(plan.strategy));
  }
  return out + "</details>\n";
}

}  // namespace parsim::report
