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
#include "experiment/options.hpp"
#include "networks/networks.hpp"
#include "strategies/blocks.hpp"
#include "strategies/experts.hpp"
#include "topologies/topologies.hpp"
#include "validation/agreeing_columns.hpp"
#include "validation/embedded.hpp"
#include "validation/measurements.hpp"
#include "validation/published_names.hpp"

namespace parsim::validation {

namespace {

std::string plain(std::string_view text) {
  std::string kept;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) != 0) kept += static_cast<char>(std::tolower(byte));
  }
  return kept;
}

bool contains(std::string_view text, std::string_view word) {
  return plain(text).find(plain(word)) != std::string::npos;
}

/// A kind of link and its data-sheet rate in GB/s per GPU and direction.
struct LineRate {
  LinkKind kind;
  double rate;
};

/// The NVLinks of the architecture's data-center card together.
LineRate nvlink_rate(const std::string& architecture) {
  if (architecture == "6.0") return {LinkKind::nvlink1, 4 * 20.0};
  if (architecture == "7.0") return {LinkKind::nvlink2, 6 * 25.0};
  if (architecture == "8.0") return {LinkKind::nvlink3, 12 * 25.0};
  if (architecture.starts_with("9")) return {LinkKind::nvlink4, 18 * 25.0};
  if (architecture.starts_with("10")) return {LinkKind::nvlink5, 18 * 50.0};
  // Bridges between consumer cards.
  return {architecture < std::string("8") ? LinkKind::nvlink2 : LinkKind::nvlink3, 56.25};
}

/// x16.
LineRate pcie_rate(std::string_view interconnect, const DeviceModel& model) {
  if (contains(interconnect, "gen5")) return {LinkKind::pcie5, 63};
  if (contains(interconnect, "gen4")) return {LinkKind::pcie4, 31.5};
  if (contains(interconnect, "gen3")) return {LinkKind::pcie3, 15.75};
  const bool old = model.architecture < std::string("8") && model.architecture.size() == 3;
  return old ? LineRate{LinkKind::pcie3, 15.75} : LineRate{LinkKind::pcie4, 31.5};
}

LinkKind network_kind(std::string_view interconnect) {
  if (contains(interconnect, "EFA")) return LinkKind::efa;
  if (contains(interconnect, "RoCE")) return LinkKind::roce;
  if (contains(interconnect, "Slingshot")) return LinkKind::slingshot;
  // TCPXO: the card does the transport, with direct access to the memory of GPUs.
  if (contains(interconnect, "TCPXO")) return LinkKind::roce;
  for (const std::string_view word : {"TCP", "Ethernet", "GbE"}) {
    if (contains(interconnect, word)) return LinkKind::tcp;
  }
  return LinkKind::infiniband;
}

/// Published properties of a network between machines in addition to its line rate.
struct Between {
  double port_latency = 2;  ///< us, of the link at a port; guessed
};

/// EFA: aws/aws-ofi-nccl (commit 2daf7d3). A message takes 20 us on p5 (src/tuner/
/// nccl_ofi_model.cpp, measured by AWS) and 75 us on p4 (src/platform-aws.cpp: the value passed to
/// NCCL; the plugin sends and receives there instead of writing); 1 us of it are the links of each
/// machine.
Between between_machines(std::string_view interconnect, const DeviceModel& model) {
  if (!contains(interconnect, "EFA")) return {};
  if (model.architecture.starts_with("9")) return {.port_latency = 20.0 / 2 - 1};
  return {.port_latency = 75.0 / 2 - 1};
}

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
  const auto nodes = static_cast<std::size_t>(count_column(claim, "nodes", 1));
  return even && (counts.size() < 2 || counts.size() == nodes) ? std::vector<std::size_t>{}
                                                               : counts;
}

/// Throws InputError for a text that does not say what connects GPUs.
[[noreturn]] void refuse_interconnect(const Claim& claim, std::string_view text) {
  const std::vector<std::string> known = {"NVLink", "NVSwitch", "PCIe"};
  std::string hint;
  for (const std::string& word : split_at(text, ' ')) {
    if (hint.empty() && std::find(known.begin(), known.end(), word) == known.end()) {
      hint = did_you_mean(word, known);
    }
  }
  throw InputError(location_of(claim, "interconnect"), fmt::format("'{}'", text),
                   fmt::format("accepted: a text that names NVLink, NVSwitch or PCIe, and between "
                               "machines ports with their rate, as in 'NVLink4 + 8x400 Gb/s'{}",
                               hint));
}

/// The ports between machines. Without any text: one of 100 Gbit/s, a guess.
NetworkPorts ports_between(const Claim& claim, std::string_view text) {
  const std::optional<NetworkPorts> ports = network_ports(text);
  if (!ports && !text.empty()) refuse_interconnect(claim, text);
  return ports.value_or(NetworkPorts{});
}

std::string built_call(const Claim& claim) {
  const std::string device = device_of(claim);
  std::string interconnect = column(claim, "interconnect");
  const DeviceModel& model = topologies::device_model(device, location_of(claim, "gpu"));
  const std::int64_t gpus = count_column(claim, "n_gpus", 1);
  std::int64_t nodes = count_column(claim, "nodes", 1);
  std::int64_t each = count_column(claim, "gpus_per_node", std::max<std::int64_t>(1, gpus / nodes));
  if (const std::vector<std::size_t> placed = uneven_placement(claim); !placed.empty()) {
    nodes = static_cast<std::int64_t>(placed.size());
    each = static_cast<std::int64_t>(*std::max_element(placed.begin(), placed.end()));
  }
  if (nodes == 1 && interconnect.empty()) {  // "8 x H100, NVSwitch"
    const std::string machine = column(claim, "machine");
    for (const std::string_view word : {"NVSwitch", "NVLink", "PCIe"}) {
      if (contains(machine, word)) interconnect = machine;
    }
  }
  const bool unsaid = interconnect.empty() && is_module(model);
  const bool nvlink =
      unsaid || ((contains(interconnect, "nvlink") || contains(interconnect, "nvswitch")) &&
                 !contains(interconnect, "without nvlink"));
  if (each > 1 && !nvlink && !interconnect.empty() && !contains(interconnect, "pcie") &&
      !contains(interconnect, "nvlink")) {
    refuse_interconnect(claim, interconnect);
  }
  // Without any text: NVLink of modules (SXM), PCIe of the GPU's generation of cards.
  const LineRate inside = nvlink ? nvlink_rate(model.architecture) : pcie_rate(interconnect, model);
  if (nodes == 1) {
    const bool sockets =
        !nvlink && (contains(interconnect, "qpi") || contains(interconnect, "upi"));
    if (sockets) {
      return fmt::format(
          "pcie-tree:{},device={},rate={}GB/s,kind={},per-switch=2,sockets=2,latency=500ns", each,
          device, inside.rate, to_text(inside.kind));
    }
    if (contains(interconnect, "cube mesh") && each == 8) {
      const bool four = model.architecture == "6.0";
      return fmt::format("cube-mesh:8,device={},links={},rate={}GB/s,kind={}", device, four ? 4 : 6,
                         four ? 20 : 25, to_text(inside.kind));
    }
    return fmt::format("star:{},device={},rate={}GB/s,kind={},latency={}", each, device,
                       inside.rate, to_text(inside.kind), nvlink ? "1us" : "500ns");
  }
  const NetworkPorts ports = ports_between(claim, interconnect);
  const double all = static_cast<double>(ports.count) * ports.gigabits / 8;
  // More ports than GPUs are bundled; fewer ports are shared evenly.
  std::int64_t cards = std::min(ports.count, each);
  while (each % cards != 0) --cards;
  const Between between = between_machines(interconnect, model);
  return fmt::format(
      "nodes:{}x{},device={},intra={}GB/s,intra-kind={},inter={}GB/s,inter-kind={},nics={},"
      "intra-latency={},inter-latency={}us",
      nodes, each, device, inside.rate, to_text(inside.kind), all / static_cast<double>(cards),
      to_text(network_kind(interconnect)), cards, nvlink ? "1us" : "500ns", between.port_latency);
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
  return column(claim, name).find(word) != std::string::npos;
}

std::int64_t count_column(const Claim& claim, std::string_view name, std::int64_t otherwise) {
  const std::string text = column(claim, name);
  return text.empty() ? otherwise
                      : parse_whole(text, location_of(claim, name), 1, std::int64_t{1} << 50);
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

Cluster whole_cluster_of(const Claim& claim) {
  const std::int64_t gpus = count_column(
      claim, "n_gpus", count_column(claim, "nodes", 1) * count_column(claim, "gpus_per_node", 1));
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
  const std::int64_t nodes = count_column(claim, "nodes", 1);
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

std::int64_t machines_of(const Claim& claim) {
  if (column(claim, "cluster").empty()) return count_column(claim, "nodes", 1);
  const Cluster cluster = cluster_of(claim);
  std::set<NodeId> machines;
  for (const DeviceId gpu : devices_of(cluster, DeviceKind::gpu))
    machines.insert(cluster[gpu].node);
  return std::ssize(machines);
}

namespace {

void drop_blanks(std::string_view& text) {
  while (text.ends_with(' ')) text.remove_suffix(1);
}

/// Removes the number at the end of `text` and returns it, if there is one.
std::optional<double> take_number(std::string_view& text) {
  drop_blanks(text);
  const std::size_t begin = text.find_last_not_of("0123456789.") + 1;  // npos + 1 is 0
  const auto number = to_number<double>(text.substr(begin));
  if (number) text = text.substr(0, begin);
  return number;
}

/// The count at the end of a text such as "8x HDR " or "4x".
std::optional<double> take_count(std::string_view text) {
  drop_blanks(text);
  const auto is_times = [&] { return text.ends_with('x') || text.ends_with('X'); };
  if (!is_times()) {  // a word between
    text = text.substr(0, text.find_last_of(' ') + 1);
    drop_blanks(text);
    if (!is_times()) return std::nullopt;
  }
  text.remove_suffix(1);
  return take_number(text);
}

}  // namespace

std::optional<NetworkPorts> network_ports(std::string_view interconnect) {
  const std::string_view text = interconnect;
  // "8x HDR 200 Gb/s", "4x100 Gb/s", "32x100 Gb/s": ports and the rate of each; else
  // "(56 Gb/s)", "3200 Gb/s", "100GbE": a rate alone, of all ports together.
  std::optional<double> alone;
  for (std::size_t at = 0; at + 1 < text.size(); ++at) {
    if ((text[at] != 'G' && text[at] != 'g') || (text[at + 1] != 'b' && text[at + 1] != 'B'))
      continue;
    std::string_view before = text.substr(0, at);
    const std::optional<double> rate = take_number(before);
    if (!rate) continue;
    const std::optional<double> count = take_count(before);
    if (count && *count >= 1 && *count <= 1e6) {
      return NetworkPorts{static_cast<std::int64_t>(*count), *rate};
    }
    if (!alone) alone = rate;
  }
  if (alone) {
    if (*alone <= 400) return NetworkPorts{1, *alone};
    return NetworkPorts{8, *alone / 8};  // no single port is that fast
  }
  constexpr std::pair<std::string_view, double> generations[] = {
      {"NDR", 400}, {"HDR", 200}, {"EDR", 100}, {"FDR", 56}, {"QDR", 40}};
  for (const auto& [word, rate] : generations) {
    if (text.find(word) != std::string::npos) return NetworkPorts{1, rate};
  }
  return std::nullopt;
}

}  // namespace parsim::validation
