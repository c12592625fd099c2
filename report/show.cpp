#include "report/show.hpp"

#include <fmt/format.h>

#include <map>
#include <utility>
#include <vector>

#include "core/text.hpp"
#include "experiment/run.hpp"
#include "report/result_text.hpp"

namespace parsim::report {

void fields(auto& visit, json::Of<LayerRow> auto& row) {
  visit("layer", row.name);
  visit("kind", row.kind);
  visit("output", row.output, "of a sample");
  visit("parameters", row.parameters, any_count);
  visit("forward_flops_per_sample", row.forward_flops);
}

namespace {

struct NetworkRow {
  std::string name{};
  std::size_t layers = 0;
  std::int64_t parameters = 0, active = 0;
  double forward_flops = 0;
  std::vector<LayerRow> rows{};
  std::vector<std::string> warnings{};
};
void fields(auto& visit, json::Of<NetworkRow> auto& row) {
  visit("name", row.name);
  visit("layers", row.layers, any_count);
  visit("parameters", row.parameters, any_count);
  visit("active_parameters", row.active,
        Rule(any_count, "that one token uses: of experts the share of those that it goes to"));
  visit("forward_flops_per_sample", row.forward_flops, "2 x multiply-accumulates");
  visit("rows", row.rows, "the layers, in the order of plans; with --depth modules");
  visit("warnings", row.warnings);
}

struct ProvenanceRow {
  Provenance provenance{};
};
void fields(auto& visit, json::Of<ProvenanceRow> auto& row) {
  visit("number", row.provenance.key, "which number; * for all");
  visit("label", row.provenance.label);
  visit("source", row.provenance.source);
}

struct PeaksRow {
  DeviceModel model{};
};
void fields(auto& visit, json::Of<PeaksRow> auto& row) {
  for (const Precision precision :
       {Precision::fp32, Precision::tf32, Precision::fp16, Precision::bf16}) {
    visit(to_text(precision), row.model.peak_at(precision).value);
  }
  std::optional<double> fp8;
  if (row.model.fp8_peak.value > 0) fp8 = row.model.fp8_peak.value;
  visit(to_text(Precision::fp8), fp8);
}

struct ShownDevice {
  Device device{};
  DeviceModel model{};
  std::optional<std::string> node{};
};
void fields(auto& visit, json::Of<ShownDevice> auto& row) {
  visit("name", row.device.name);
  visit("model", row.model.name);
  visit("kind", row.model.kind);
  visit("node", row.node);
  visit("memory_bytes", row.device.memory.value, any_count);
  visit("memory_bytes_per_s", row.model.memory_rate.value);
  visit("peak_flops_per_s", PeaksRow{row.model});
  const auto number = [](const auto& known) {
    return known ? std::optional<double>(known->value) : std::nullopt;
  };
  visit("price_per_hour", number(row.device.upkeep.price), "null: not known, or its machine's");
  visit("power_w", number(row.device.upkeep.power), "while kernels run");
  visit("idle_power_w", number(row.device.upkeep.idle()), "a fifth of power_w unless given");
  visit("mtbf_s", row.device.upkeep.mtbf, "mean time between failures; null: not known");
  std::vector<ProvenanceRow> sources;
  for (const Provenance& one : row.model.provenance) sources.push_back({one});
  visit("sources", sources);
}

struct ShownLink {
  Link link{};
  std::string a{}, b{};
  std::optional<ProvenanceRow> source{};
};
void fields(auto& visit, json::Of<ShownLink> auto& row) {
  const Link& link = row.link;
  visit("name", link.name);
  visit("a", row.a);
  visit("b", row.b);
  visit("rate_bytes_per_s", link.rate.value, "per direction");
  visit("latency_s", link.latency);
  visit("kind", link.kind);
  visit("kind_guessed", link.kind_guessed);
  visit("line_rate_bytes_per_s",
        link.line_rate.value > 0 ? std::optional(link.line_rate.value) : std::nullopt,
        "of the data sheet, of which the rate is a share");
  const auto watts = [](const std::optional<Watts>& known) {
    return known ? std::optional<double>(known->value) : std::nullopt;
  };
  visit.optional("power_w", watts(link.power.power),
                 "while it carries its rate in both directions, if known");
  visit.optional("idle_power_w", watts(link.power.idle()), "power_w unless given");
  visit("source", row.source);
}

struct ClusterRow {
  std::string name{};
  std::vector<ShownDevice> devices{};
  std::vector<ShownLink> links{};
  std::optional<double> bisection{};
};
void fields(auto& visit, json::Of<ClusterRow> auto& row) {
  visit("name", row.name);
  visit("devices", row.devices);
  visit("links", row.links);
  visit("bisection_bytes_per_s", row.bisection);
}

}  // namespace

std::vector<LayerRow> layer_rows(const Network& network) {
  std::vector<LayerRow> rows;
  for (std::size_t i = 0; i < network.layers.size(); ++i) {
    const Layer& layer = network.layers[i];
    std::int64_t own = 0;
    for (const ParameterId id : layer.parameters) own += network[id].elements();
    const std::vector<Shape> inputs = input_shapes(network, LayerId{i});
    rows.push_back({layer.name, std::string(kind_name(layer.kind)), to_text(layer.out), own,
                    forward_flops(layer.kind, inputs, layer.out, {whole(layer.out, 1), {}}).value});
  }
  return rows;
}

std::vector<std::string> shared_parameters(const Network& network) {
  std::vector<std::string> lines;
  std::vector<LayerId> first(network.parameters.size());
  for (std::size_t i = 0; i < network.layers.size(); ++i) {
    for (const ParameterId id : network.layers[i].parameters) {
      LayerId& owner = first[id.index()];
      if (owner.valid()) {
        lines.push_back(fmt::format(
            "{} has the {} parameters of {}, too: both rows have them, the total has them once",
            network.layers[i].name, network[id].elements(), network[owner].name));
      } else {
        owner = LayerId{i};
      }
    }
  }
  constexpr std::size_t most = 3;
  if (lines.size() > most) {
    const std::size_t more = lines.size() - most;
    lines.resize(most);
    lines.push_back(fmt::format("and so do {} more", more));
  }
  return lines;
}

namespace {

/// The first `depth` parts of a name; all of one with fewer parts. ONNX separates modules by
/// slashes, and dots are within their names there.
std::string module_of(const std::string& name, std::size_t depth) {
  const char separator = name.starts_with('/') ? '/' : '.';
  std::size_t end = separator == '/' ? 1 : 0;
  for (std::size_t level = 0; level < depth; ++level) {
    const std::size_t next = name.find(separator, end);
    if (next == std::string::npos) return name;
    end = next + 1;
  }
  return name.substr(0, end - 1);
}

/// A module's name as its parameters have it: "layer1.0.conv1" of "/layer1/layer1.0/conv1", where
/// a part that repeats the one before it stands for both.
std::string dotted(std::string_view module) {
  std::string name, last;
  for (const std::string& part : split_at(module.substr(1), '/')) {
    const bool repeats = !last.empty() && part.starts_with(last + ".");
    name = name.empty() ? part : repeats ? name + part.substr(last.size()) : name + "." + part;
    last = part;
  }
  return name;
}

/// The module of a parameter: the longest name that begins its own; "" if there is none.
std::string module_of_parameter(const std::string& name,
                                const std::map<std::string, std::string>& modules) {
  for (std::size_t end = name.rfind('.'); end != std::string::npos && end > 0;
       end = name.rfind('.', end - 1)) {
    const auto found = modules.find(name.substr(0, end));
    if (found != modules.end()) return found->second;
  }
  return "";
}

}  // namespace

std::vector<LayerRow> module_rows(const Network& network, std::size_t depth) {
  std::vector<LayerRow> modules;
  std::map<std::string, std::size_t> index;
  std::vector<std::int64_t> counts;
  const std::vector<LayerRow> layers = layer_rows(network);
  std::map<std::string, std::string> by_parameter;  // of graphs whose layers have slashes
  for (const LayerRow& layer : layers) {
    const std::string module = module_of(layer.name, depth);
    if (module.starts_with('/') && module != layer.name) by_parameter[dotted(module)] = module;
  }
  for (const LayerRow& layer : layers) {
    std::string module = module_of_parameter(layer.name, by_parameter);
    if (module.empty()) module = module_of(layer.name, depth);
    const auto [entry, fresh] = index.try_emplace(module, modules.size());
    if (fresh) {
      modules.push_back(layer);
      counts.push_back(1);
      continue;
    }
    LayerRow& row = modules[entry->second];
    row.name = module;
    row.kind = counted(++counts[entry->second], "layer");
    row.output = layer.output;
    row.parameters += layer.parameters;
    row.forward_flops += layer.forward_flops;
  }
  return modules;
}

std::string network_json(const Network& network, std::vector<LayerRow> rows) {
  return result_text(NetworkRow{network.name, network.layers.size(), parameter_count(network),
                                active_parameter_count(network),
                                forward_flops_per_sample(network).value, std::move(rows),
                                network.warnings});
}

std::string network_json(const Network& network) {
  return network_json(network, layer_rows(network));
}

std::string cluster_json(const Cluster& cluster, std::optional<BytesPerSecond> bisection) {
  ClusterRow row{cluster.name, {}, {}, {}};
  if (bisection) row.bisection = bisection->value;
  for (std::size_t i = 0; i < cluster.devices.size(); ++i) {
    const Device& device = cluster.devices[i];
    row.devices.push_back({device, cluster.model(DeviceId{i}), {}});
    if (device.node.valid()) row.devices.back().node = cluster.nodes[device.node.index()].name;
  }
  for (const Link& link : cluster.links) {
    row.links.push_back(
        {link, experiment::port_name(cluster, link.a), experiment::port_name(cluster, link.b), {}});
    if (link.provenance < 0) continue;
    row.links.back().source = {cluster.provenances[static_cast<std::size_t>(link.provenance)]};
  }
  return result_text(row);
}

std::string network_schema() {
  return json::schema_of_file<NetworkRow>("What parsim show network --json prints");
}
std::string cluster_report_schema() {
  return json::schema_of_file<ClusterRow>("What parsim show cluster --json prints");
}

}  // namespace parsim::report
