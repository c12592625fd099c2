#include <fmt/format.h>

#include <algorithm>

#include "app/verbs.hpp"
#include "core/errors.hpp"
#include "core/routes.hpp"
#include "experiment/bisection.hpp"
#include "experiment/request.hpp"
#include "experiment/run.hpp"
#include "report/dot.hpp"
#include "report/show.hpp"
#include "topologies/topologies.hpp"

namespace parsim::app {

namespace {

void refuse_unused(const experiment::Arguments& arguments, std::string_view flag,
                   std::string_view where) {
  if (!arguments.has(flag)) return;
  throw InputError(flag, fmt::format("unused by 'show {}'", arguments.words.at(0)),
                   fmt::format("accepted: with 'show {}'", where));
}

report::Document show_network(const experiment::Arguments& arguments) {
  refuse_unused(arguments, "--override", "cluster");
  const Network network = experiment::load_network_with(
      arguments.words.at(1), experiment::parse_dims(arguments.texts("--dim")), "show network");
  report::Document document;
  const std::string form = arguments.text("--format").value_or("");
  if (form == "dot") document.drawing = report::dot_of(network);
  if (form == "simgrid") {
    throw InputError("--format", "'simgrid' of a network", "accepted: with show cluster");
  }
  const std::int64_t active = active_parameter_count(network);
  const bool experts = active != parameter_count(network);
  document.head = {fmt::format("{}: {} layers, {} parameters{}, {} GFLOP forward per sample",
                               network.name, network.layers.size(), parameter_count(network),
                               experts ? fmt::format(" ({} active)", active) : "",
                               three_digits(forward_flops_per_sample(network).value / 1e9))};
  std::vector<std::string> names, kinds, shapes;
  std::vector<double> parameters, flops;
  constexpr std::int64_t deepest = 64;
  const std::optional<std::int64_t> depth = arguments.number("--depth", 1, deepest);
  const std::vector<report::LayerRow> rows =
      depth ? report::module_rows(network, static_cast<std::size_t>(*depth))
            : report::layer_rows(network);
  for (const report::LayerRow& row : rows) {
    names.push_back(row.name);
    kinds.push_back(row.kind);
    shapes.push_back(row.output);
    parameters.push_back(static_cast<double>(row.parameters));
    flops.push_back(row.forward_flops);
  }
  report::Table table;
  report::add_words(table, depth ? "module" : "layer", "layer", names);
  report::add_words(table, "kind", "kind", kinds);
  report::add_words(table, "output", "output", shapes);
  report::add_numbers(table, "", {{"parameters", "parameters", parameters}});
  report::add_numbers(table, "FLOP", {{"forward", "forward_flops_per_sample", flops}});
  document.tables = {std::move(table)};
  document.notes = report::shared_parameters(network);
  document.warnings = network.warnings;
  document.json = report::network_json(network, rows);
  return document;
}

/// Label of a model's worst-founded number: a chain is as strong as that.
std::string worst_label(const DeviceModel& model) {
  Label worst = Label::measured;
  for (const Provenance& one : model.provenance) worst = std::max(worst, one.label);
  return std::string(to_text(model.provenance.empty() ? Label::guessed : worst));
}

report::Table device_table(const Cluster& cluster) {
  std::vector<std::string> names, models, nodes, labels;
  std::vector<double> memory, memory_rate, fp32, fp16;
  for (std::size_t i = 0; i < cluster.devices.size(); ++i) {
    const Device& device = cluster.devices[i];
    const DeviceModel& model = cluster.model(DeviceId{i});
    names.push_back(device.name);
    models.push_back(model.name);
    nodes.push_back(device.node.valid() ? cluster.nodes[device.node.index()].name : "-");
    memory.push_back(static_cast<double>(device.memory.value));
    memory_rate.push_back(model.memory_rate.value);
    fp32.push_back(model.peak_at(Precision::fp32).value);
    fp16.push_back(model.peak_at(Precision::fp16).value);
    labels.push_back(worst_label(model));
  }
  report::Table table;
  report::add_words(table, "device", "name", names);
  report::add_words(table, "model", "model", models);
  report::add_words(table, "node", "node", nodes);
  report::add_numbers(table, "B", {{"memory", "memory_bytes", memory}});
  report::add_numbers(table, "B/s", {{"memory rate", "memory_bytes_per_s", memory_rate}});
  report::add_numbers(table, "FLOP/s", {{"fp32", "fp32_flops_per_s", fp32}});
  report::add_numbers(table, "FLOP/s", {{"fp16", "fp16_flops_per_s", fp16}});
  report::add_words(table, "numbers", "label", labels);
  return table;
}

/// "nvlink4: 0.8 of 450 GB/s", "pcie3", "pcie3 (guessed)", or "-".
std::string kind_of(const Link& link) {
  if (!link.kind) return "-";
  const std::string kind(to_text(*link.kind));
  if (link.kind_guessed) return kind + " (guessed)";
  if (link.line_rate.value <= 0) return kind;
  return fmt::format("{}: {} of {} GB/s", kind,
                     three_digits(link.rate.value / link.line_rate.value),
                     three_digits(link.line_rate.value / 1e9));
}

report::Table link_table(const Cluster& cluster) {
  std::vector<std::string> names, from, to, labels, kinds;
  std::vector<double> rates, latencies;
  for (const Link& link : cluster.links) {
    names.push_back(link.name);
    from.push_back(experiment::port_name(cluster, link.a));
    to.push_back(experiment::port_name(cluster, link.b));
    rates.push_back(link.rate.value);
    latencies.push_back(link.latency.count());
    kinds.push_back(kind_of(link));
    labels.emplace_back(
        link.provenance < 0
            ? "-"
            : to_text(cluster.provenances[static_cast<std::size_t>(link.provenance)].label));
  }
  report::Table table;
  report::add_words(table, "link", "name", names);
  report::add_words(table, "a", "a", from);
  report::add_words(table, "b", "b", to);
  report::add_numbers(table, "B/s", {{"rate each way", "rate_bytes_per_s", rates}});
  report::add_numbers(table, "s", {{"latency", "latency_s", latencies}});
  report::add_words(table, "kind", "kind", kinds);
  report::add_words(table, "numbers", "label", labels);
  return table;
}

/// What one looks for in `nvidia-smi topo -m`: how every two GPUs meet.
report::Table ways_table(const Cluster& cluster) {
  const std::vector<DeviceId> gpus = devices_of(cluster, DeviceKind::gpu);
  Routes routes(cluster);
  report::Table table;
  table.title =
      "between GPUs: cables x GB/s each where they are joined, else GB/s over so many links";
  std::vector<std::string> names;
  for (const DeviceId gpu : gpus) names.push_back(cluster[gpu].name);
  report::add_words(table, "", "from", names);
  for (const DeviceId to : gpus) {
    std::vector<std::string> cells;
    for (const DeviceId from : gpus) {
      const auto cables =
          std::count_if(cluster.links.begin(), cluster.links.end(), [&](const Link& link) {
            return std::minmax(link.a, link.b) == std::minmax(Port::of(from), Port::of(to));
          });
      const Route& way = routes.between(from, to);
      const std::string rate = three_digits(way.rate.value / 1e9);
      cells.push_back(from == to   ? "-"
                      : cables > 0 ? fmt::format("{} x {}", cables, rate)
                                   : fmt::format("{} over {}", rate, way.hops.size()));
    }
    report::add_words(table, cluster[to].name, cluster[to].name, cells);
  }
  return table;
}

report::Document show_cluster(const experiment::Arguments& arguments) {
  refuse_unused(arguments, "--depth", "network");
  refuse_unused(arguments, "--dim", "network");
  std::vector<std::string> warnings;
  const Cluster cluster = experiment::load_cluster_with(
      arguments.words.at(1), arguments.texts("--override"), "show cluster", &warnings);
  const std::string form = arguments.text("--format").value_or("");
  const std::optional<BytesPerSecond> bisection = experiment::bisection_rate(cluster);
  report::Document document;
  document.warnings = std::move(warnings);
  if (form == "dot") document.drawing = report::dot_of(cluster);
  if (form == "simgrid") document.drawing = topologies::simgrid_xml(cluster, "show cluster");
  document.head = {fmt::format("{}: {} devices, {} switches, {} links, bisection {}", cluster.name,
                               cluster.devices.size(), cluster.switches.size(),
                               cluster.links.size(), bisection ? to_text(*bisection) : "none")};
  document.tables = {device_table(cluster), link_table(cluster)};
  constexpr std::size_t widest_table = 8;
  const std::size_t gpus = devices_of(cluster, DeviceKind::gpu).size();
  if (gpus > 1 && gpus <= widest_table) document.tables.push_back(ways_table(cluster));
  document.notes = {
      "bisection: rate from the first half of the GPUs to the second, in order of their ids"};
  document.json = report::cluster_json(cluster, bisection);
  return document;
}

}  // namespace

Outcome run_show(const experiment::Arguments& arguments) {
  using Show = report::Document (*)(const experiment::Arguments&);
  const std::pair<std::string_view, Show> kinds[] = {{"network", show_network},
                                                     {"cluster", show_cluster}};
  return {experiment::parse_word(arguments.words.at(0), "show", kinds)(arguments), ExitCode::ok};
}

}  // namespace parsim::app
