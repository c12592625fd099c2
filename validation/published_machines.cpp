#include "validation/published_machines.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <numeric>
#include <optional>
#include <set>
#include <vector>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "experiment/calibration.hpp"
#include "experiment/options.hpp"
#include "experiment/trainer_words.hpp"
#include "networks/networks.hpp"
#include "strategies/blocks.hpp"
#include "strategies/experts.hpp"
#include "topologies/topologies.hpp"
#include "validation/affirmed_words.hpp"
#include "validation/agreeing_columns.hpp"
#include "validation/embedded.hpp"
#include "validation/interconnect_column.hpp"
#include "validation/measurements.hpp"
#include "validation/published_names.hpp"

namespace parsim::validation {

namespace {

/// GPUs per machine, of a column such as "1+1+4+3"; nothing if it is empty or equivalent to
/// `nodes`.
std::vector<std::size_t> uneven_placement(const Claim& claim) {
  const std::string text = column(claim, "placement");
  std::vector<std::size_t> counts;
  if (text.empty()) return counts;
  for (const std::string& count : split_at(text, '+')) {
    counts.push_back(
        static_cast<std::size_t>(parse_whole(count, location_of(claim, "placement"), 1, 1 << 20)));
  }
  const bool even =
      std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
  const auto nodes = static_cast<std::size_t>(nodes_of(claim));
  return even && (counts.size() < 2 || counts.size() == nodes) ? std::vector<std::size_t>{}
                                                               : counts;
}

/// Throws InputError for more GPUs than usual machines have, where no column says how many have
/// them: links between machines would be taken for those inside one.
void check_machines(const Claim& claim, std::int64_t gpus) {
  constexpr std::int64_t usual = 8;
  for (const char* name : {"nodes", "gpus_per_node", "placement"}) {
    if (!column(claim, name).empty()) return;
  }
  if (gpus <= usual) return;
  throw InputError(location_of(claim, "nodes"), fmt::format("empty, but n_gpus is {}", gpus),
                   "accepted: the number of machines that the GPUs are in (1 if they share one), "
                   "or gpus_per_node");
}

std::string built_call(const Claim& claim) {
  const std::string device = device_of(claim);
  const DeviceModel& model = topologies::device_model(device, location_of(claim, "gpu"));
  const std::int64_t gpus = count_column(claim, "n_gpus", 1);
  check_machines(claim, gpus);
  std::int64_t nodes = nodes_of(claim);
  std::int64_t each = count_column(claim, "gpus_per_node", std::max<std::int64_t>(1, gpus / nodes));
  if (const std::vector<std::size_t> placed = uneven_placement(claim); !placed.empty()) {
    nodes = static_cast<std::int64_t>(placed.size());
    each = static_cast<std::int64_t>(*std::max_element(placed.begin(), placed.end()));
  }
  const std::string interconnect = interconnect_of(claim);
  const InsideLinks inside = inside_links(claim, interconnect, model, each);
  const std::string_view latency = inside.modules ? "1us" : "500ns";
  if (nodes == 1) {
    const bool sockets =
        !inside.modules && (names(interconnect, "qpi") || names(interconnect, "upi"));
    if (sockets) {
      return fmt::format(
          "pcie-tree:{},device={},rate={}GB/s,kind={},per-switch=2,sockets=2,latency=500ns", each,
          device, inside.rate, to_text(inside.kind));
    }
    if (names(interconnect, "cube mesh") && each == 8) {
      const bool four = model.architecture == "6.0";
      return fmt::format("cube-mesh:8,device={},links={},rate={}GB/s,kind={}", device, four ? 4 : 6,
                         four ? 20 : 25, to_text(inside.kind));
    }
    return fmt::format("star:{},device={},rate={}GB/s,kind={},latency={}", each, device,
                       inside.rate, to_text(inside.kind), latency);
  }
  const NetworkPorts ports = ports_between(claim, interconnect, each);
  const double all = static_cast<double>(ports.count) * ports.gigabits / 8;
  // More ports than GPUs are bundled; fewer ports are shared evenly.
  std::int64_t cards = std::min(ports.count, each);
  while (each % cards != 0) --cards;
  const LinkKind kind =
      named_network_kind(interconnect, column(claim, "machine")).value_or(LinkKind::infiniband);
  return fmt::format(
      "nodes:{}x{},device={},intra={}GB/s,intra-kind={},inter={}GB/s,inter-kind={},nics={},"
      "intra-latency={},inter-latency={}us",
      nodes, each, device, inside.rate, to_text(inside.kind), all / static_cast<double>(cards),
      to_text(kind), cards, latency, port_latency(kind, model));
}

}  // namespace

std::string location_of(const Claim& claim, std::string_view key) {
  return fmt::format("{}:{}:{}", claim.set, column(claim, "line"), key);
}

std::string column(const Claim& claim, std::string_view name) {
  const auto found = claim.what.find(name);
  return found == claim.what.end() ? std::string() : found->second;
}

bool column_contains(const Claim& claim, std::string_view name, std::string_view word) {
  return affirmed(column(claim, name)).find(experiment::lower_case(std::string(word))) !=
         std::string::npos;
}

bool trained_by_nemo(const Claim& claim) {
  if (column_contains(claim, "framework", "AutoModel")) return false;
  const std::string text = affirmed(column(claim, "framework"));
  const auto letter = [&](std::size_t at) {
    return at < text.size() && std::isalpha(static_cast<unsigned char>(text[at])) != 0;
  };
  constexpr std::string_view word = "nemo";
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    if ((at == 0 || !letter(at - 1)) && !letter(at + word.size())) return true;  // no "Nemotron"
  }
  return false;
}

bool trained_by_megatron(const Claim& claim) {
  return column_contains(claim, "framework", "Megatron") || trained_by_nemo(claim);
}

std::int64_t count_column(const Claim& claim, std::string_view name, std::int64_t otherwise) {
  const std::string text = column(claim, name);
  return text.empty() ? otherwise
                      : parse_whole(text, location_of(claim, name), 1, std::int64_t{1} << 50);
}

std::int64_t nodes_of(const Claim& claim) {
  if (!column(claim, "nodes").empty()) return count_column(claim, "nodes", 1);
  const std::string placement = column(claim, "placement");
  if (!placement.empty()) return std::ssize(split_at(placement, '+'));
  const std::int64_t gpus = count_column(claim, "n_gpus", 1);
  const std::int64_t each = count_column(claim, "gpus_per_node", gpus);
  return each < gpus && gpus % each == 0 ? gpus / each : 1;
}

std::string interconnect_of(const Claim& claim) {
  std::string text = column(claim, "interconnect");
  const std::string machine = column(claim, "machine");
  if (nodes_of(claim) != 1 || !text.empty()) return text;
  for (const std::string_view word : {"NVSwitch", "NVLink", "PCIe", "Infinity Fabric", "xGMI"}) {
    if (names(machine, word)) text = machine;
  }
  return text;
}

std::string system_of(const Claim& claim) {
  std::vector<std::string> words;
  for (const std::string_view name : {"machine", "gpu", "framework"}) {
    if (std::string text = column(claim, name); !text.empty()) words.push_back(std::move(text));
  }
  return join(words);
}

std::string network_of(const Claim& claim) {
  if (std::string call = column(claim, "network"); !call.empty()) return call;
  return named_network(claim);
}

std::map<std::string, std::int64_t> dims_of(const Claim& claim) {
  const std::string call = network_of(claim), name = call.substr(0, call.find(':'));
  const auto& known = networks::all();
  const auto found = std::find_if(known.begin(), known.end(),
                                  [&](const auto& entry) { return entry.name == name; });
  if (found == known.end() || !found->sized || column(claim, "seq_len").empty()) return {};
  return {{"seq_length", count_column(claim, "seq_len", 1)}};
}

namespace {

/// The network of the row, of which a built-in table may name a built-in file.
Network network_named_by(const Claim& claim) {
  const std::string name = network_of(claim);
  for (const EmbeddedFile& file : validation_files()) {
    if (file.path == name) {
      return networks::parse_hugging_face(std::string(file.text), name, dims_of(claim));
    }
  }
  return networks::load_network(name, dims_of(claim), claim.set);
}

}  // namespace

Network load_network_of(const Claim& claim) {
  Network network = network_named_by(claim);
  strategies::route_in_parts(network, count_column(claim, "cp", 1));
  const auto blocks = static_cast<std::int64_t>(strategies::first_layers_of_blocks(network).size());
  const std::int64_t layers = count_column(claim, "layers", blocks);
  if (blocks == 0 || layers == blocks) return network;
  throw InputError(
      location_of(claim, "layers"),
      fmt::format("{} blocks, but {} has {}", layers, network.name, blocks),
      fmt::format("accepted: the blocks of the network, which column `network` may name, "
                  "too, of a built-in language model with layers={}",
                  layers));
}

std::string device_of(const Claim& claim) {
  // Clusters of several GPU types name the devices themselves.
  if (!column(claim, "layout_file").empty()) return column(claim, "gpu");
  if (const std::string call = column(claim, "cluster"); !call.empty()) {  // it may have own types
    const Cluster own = topologies::load_cluster(call, location_of(claim, "cluster"));
    std::set<std::string> types;
    for (const DeviceId gpu : devices_of(own, DeviceKind::gpu)) types.insert(own.model(gpu).name);
    const std::string text = column(claim, "gpu");
    if (types.contains(text)) return text;
    if (text.empty() && types.size() == 1) return *types.begin();
  }
  return named_gpu(claim);
}

std::string cluster_call(const Claim& claim) {
  if (std::string named = column(claim, "cluster"); !named.empty()) return named;
  const std::string machine = column(claim, "machine");
  const std::optional<std::string> alias = resolve_alias(AliasKind::cluster, machine);
  return alias ? *alias : built_call(claim);
}

namespace {

/// The cluster with its first `count` machines, or with more like its last one; nothing if it has
/// no place for more.
std::optional<Cluster> with_machines(Cluster cluster, std::size_t count) {
  std::vector<bool> keep(cluster.nodes.size(), false);
  std::fill_n(keep.begin(), std::min(count, keep.size()), true);
  std::optional<Cluster> sized = topologies::only_nodes(std::move(cluster), keep);
  for (std::size_t n = keep.size(); sized && n < count; ++n) {
    sized = topologies::with_one_more(std::move(*sized), NodeId{n - 1});
  }
  return sized;
}

/// GPUs per machine of a cluster that the row names, by its column `placement`.
Cluster placed_in_named(const Claim& claim) {
  const std::string where = location_of(claim, "placement");
  std::vector<std::size_t> counts;
  for (const std::string& count : split_at(column(claim, "placement"), '+')) {
    counts.push_back(static_cast<std::size_t>(parse_whole(count, where, 1, 1 << 20)));
  }
  const std::string call = column(claim, "cluster");
  std::optional<Cluster> cluster =
      with_machines(topologies::load_cluster(call, location_of(claim, "cluster")), counts.size());
  if (cluster) return topologies::first_gpus_of_nodes(*std::move(cluster), counts, where);
  throw InputError(where, fmt::format("{} machines of {}", counts.size(), call),
                   "accepted: machines that the cluster has");
}

Cluster whole_cluster_of(const Claim& claim) {
  const std::int64_t gpus = count_column(
      claim, "n_gpus", count_column(claim, "nodes", 1) * count_column(claim, "gpus_per_node", 1));
  const bool is_named = !column(claim, "cluster").empty() && column(claim, "layout_file").empty();
  if (is_named && !column(claim, "placement").empty()) return placed_in_named(claim);
  if (const std::vector<std::size_t> placed = uneven_placement(claim); !placed.empty()) {
    const std::size_t sum = std::accumulate(placed.begin(), placed.end(), std::size_t{0});
    const std::string where = location_of(claim, "placement");
    if (static_cast<std::int64_t>(sum) != gpus) {
      throw InputError(where, fmt::format("{} GPUs, but n_gpus is {}", sum, gpus),
                       "accepted: GPUs per machine that add up to n_gpus, such as 1+1+4+3");
    }
    return topologies::first_gpus_of_nodes(topologies::load_cluster(built_call(claim), where),
                                           placed, where);
  }
  const std::string call = cluster_call(claim);
  if (!column(claim, "cluster").empty()) {
    Cluster named = topologies::load_cluster(call, location_of(claim, "cluster"));
    // A layout file names the devices that it uses.
    if (!column(claim, "layout_file").empty()) return named;
    return topologies::first_gpus(std::move(named), static_cast<std::size_t>(gpus),
                                  location_of(claim, "n_gpus"));
  }
  const std::string where = location_of(claim, "machine");
  const std::int64_t nodes = nodes_of(claim);
  std::optional<Cluster> cluster =
      with_machines(topologies::load_cluster(call, where), static_cast<std::size_t>(nodes));
  // Some GPUs of each machine, or machines whose network the alias does not say.
  if (!cluster || (nodes > 1 && std::ssize(devices_of(*cluster, DeviceKind::gpu)) != gpus)) {
    cluster = topologies::load_cluster(built_call(claim), where);
  }
  return topologies::first_gpus(std::move(*cluster), static_cast<std::size_t>(gpus),
                                location_of(claim, "n_gpus"));
}

}  // namespace

Cluster cluster_of(const Claim& claim) {
  Cluster cluster = whole_cluster_of(claim);
  check_gpu(claim, cluster);
  if (column(claim, uncalibrated) == bare) {
    for (Link& link : cluster.links) {
      if (link.line_rate.value > 0) link.rate = link.line_rate;
    }
    return cluster;
  }
  leave_system_out(cluster, column(claim, "machine"));
  return cluster;
}

std::optional<LinkKind> kind_between_machines_of(const Claim& claim, const Cluster& cluster) {
  const std::string text = interconnect_of(claim);
  if (!column(claim, "cluster").empty() || text.empty()) {
    return experiment::kind_between_machines(cluster);
  }
  return named_network_kind(text, column(claim, "machine"));
}

std::int64_t machines_of(const Claim& claim) {
  if (column(claim, "cluster").empty()) return nodes_of(claim);
  const Cluster cluster = cluster_of(claim);
  std::set<NodeId> machines;
  for (const DeviceId gpu : devices_of(cluster, DeviceKind::gpu))
    machines.insert(cluster[gpu].node);
  return std::ssize(machines);
}

}  // namespace parsim::validation
