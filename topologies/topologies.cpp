#include "topologies/topologies.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/errors.hpp"
#include "topologies/cluster_file.hpp"
#include "topologies/document.hpp"
#include "topologies/embedded.hpp"
#include "topologies/generator.hpp"
#include "topologies/import/import.hpp"

namespace parsim::topologies {

namespace {

/// All embedded files but the device table, which is the first.
std::span<const EmbeddedFile> machines() { return topologies_files().subspan(1); }

/// "dgx-v100" of "topologies/clusters/dgx-v100.toml".
std::string_view machine_name(const EmbeddedFile& file) {
  const std::string_view path = file.path;
  const std::size_t begin = path.rfind('/') + 1;
  return path.substr(begin, path.rfind('.') - begin);
}

constexpr std::string_view endings[] = {".toml", ".json", ".xml", ".txt"};
constexpr std::string_view device_option = ",device=";

/// A cluster file, or a file of a foreign tool with the options that `text` has after its path.
Cluster load_file(const std::string& text, const std::string& path, std::string_view where,
                  std::vector<std::string>* notes) {
  const std::string content = read_cluster_text(path, where);
  ImportOptions options;
  if (path.size() < text.size()) {
    options.device = &device_model(text.substr(path.size() + device_option.size()), where);
  }
  if (!path.ends_with(".toml") && !path.ends_with(".json")) {
    std::optional<Imported> imported = import_cluster(content, path, options);
    if (imported) {
      if (notes != nullptr) *notes = std::move(imported->notes);
      return std::move(imported->cluster);
    }
  }
  if (options.device != nullptr) {
    throw InputError(where,
                     fmt::format("'{}' after a cluster file that names its devices", device_option),
                     "accepted: after files of NCCL, nvidia-smi and SimGrid; a cluster file has "
                     "[[overrides]]");
  }
  return parse_cluster(content, path, notes);
}

/// "default of nodes: inter=12GB/s", each once, of links that have it.
std::vector<std::string> defaults_of_links(const Cluster& cluster) {
  std::vector<std::string> defaults;
  for (std::size_t i = 0; i < cluster.provenances.size(); ++i) {
    const std::string& source = cluster.provenances[i].source;
    const bool used = std::any_of(
        cluster.links.begin(), cluster.links.end(),
        [&](const Link& link) { return link.provenance == static_cast<std::int32_t>(i); });
    if (used && source.starts_with(default_of)) defaults.push_back(source);
  }
  return defaults;
}

}  // namespace

const std::vector<ClusterEntry>& clusters() {
  static const std::vector<ClusterEntry> table = [] {
    std::vector<ClusterEntry> entries;
    for (const EmbeddedFile& file : machines()) {
      entries.push_back(
          {std::string(machine_name(file)), summary_of(file.text, std::string(file.path))});
    }
    for (const Generator& generator : generators()) {
      entries.push_back({std::string(generator.name), summary(generator)});
    }
    return entries;
  }();
  return table;
}

namespace {

/// What load_cluster() finds, with the notes of imports alone.
Cluster find_cluster(const std::string& name_call_or_path, std::string_view where,
                     std::vector<std::string>* notes) {
  // Standard input, as a file.
  const bool from_standard_input =
      name_call_or_path == "-" || name_call_or_path.starts_with(fmt::format("-{}", device_option));
  const std::string text =
      from_standard_input ? "/dev/stdin" + name_call_or_path.substr(1) : name_call_or_path;
  const std::string_view word = std::string_view(text).substr(0, text.find(':'));
  for (const EmbeddedFile& file : machines()) {
    if (machine_name(file) == text) return parse_cluster(file.text, std::string(file.path));
  }
  // Calls before paths: "25GB/s" has a slash, too.
  for (const Generator& generator : generators()) {
    if (generator.name == word) return run_generator(text, std::string(where), device_models());
  }
  const std::string path = text.substr(0, text.rfind(device_option));
  const auto has_ending = [&](std::string_view name) {
    return std::any_of(std::begin(endings), std::end(endings),
                       [&](std::string_view ending) { return name.ends_with(ending); });
  };
  const bool like_a_call =
      word.size() < text.size() && word.find('/') == std::string_view::npos && !has_ending(word);
  const bool like_a_path = path.find('/') != std::string::npos || has_ending(path) ||
                           has_ending(path.substr(0, path.find(',')));
  if (like_a_path && !like_a_call) return load_file(text, path, where, notes);
  std::vector<std::string> known;
  for (const ClusterEntry& entry : clusters()) known.push_back(entry.name);
  throw InputError(
      where, fmt::format("unknown cluster '{}'", text),
      fmt::format("accepted: {}, or a file ({}, or with a /), or - for standard input{}",
                  join(known), fmt::join(endings, ", "), did_you_mean(word, known)));
}

/// Cards that do not reach each other's memory, on links of a kind that needs it: each with the
/// kind to give.
std::vector<std::string> without_peer_access(const Cluster& cluster) {
  std::set<std::string> found;
  for (const Link& link : cluster.links) {
    if (!link.kind || link.kind_guessed || family_of(*link.kind) != LinkFamily::pcie) continue;
    for (const Port& port : {link.a, link.b}) {
      if (port.kind != Port::Kind::device) continue;
      const DeviceModel& model = cluster.model(DeviceId{port.index});
      if (!lacks_peer_access(model)) continue;
      found.insert(
          fmt::format("{} do not reach each other's memory over PCIe, and copies through the "
                      "host's are half as "
                      "fast or slower: kind {}-host",
                      model.name, to_text(*link.kind)));
    }
  }
  return {found.begin(), found.end()};
}

}  // namespace

Cluster load_cluster(const std::string& name_call_or_path, std::string_view where,
                     std::vector<std::string>* notes) {
  Cluster cluster = find_cluster(name_call_or_path, where, notes);
  if (notes != nullptr) {
    for (std::string& note : without_peer_access(cluster)) notes->push_back(std::move(note));
    const std::vector<std::string> defaults = defaults_of_links(cluster);
    if (!defaults.empty()) {
      notes->push_back(fmt::format("link rates are guessed ({})", fmt::join(defaults, ", ")));
    }
  }
  return cluster;
}

}  // namespace parsim::topologies
