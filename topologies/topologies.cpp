#include "topologies/topologies.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "topologies/cluster_file.hpp"
#include "topologies/document.hpp"
#include "topologies/embedded.hpp"
#include "topologies/generator.hpp"

namespace parsim {

namespace {

/// All embedded files but the device table, which is the first.
std::span<const EmbeddedFile> machines() { return topologies_files().subspan(1); }

/// "dgx-v100" of "topologies/clusters/dgx-v100.toml".
std::string_view machine_name(const EmbeddedFile& file) {
  const std::string_view path = file.path;
  const std::size_t begin = path.rfind('/') + 1;
  return path.substr(begin, path.rfind('.') - begin);
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

Cluster load_cluster(const std::string& name_call_or_path, std::string_view where) {
  const std::string& text = name_call_or_path;
  const std::string_view word = std::string_view(text).substr(0, text.find(':'));
  for (const EmbeddedFile& file : machines()) {
    if (machine_name(file) == text) return parse_cluster(file.text, std::string(file.path));
  }
  // Calls before paths: "25GB/s" has a slash, too.
  for (const Generator& generator : generators()) {
    if (generator.name == word) return run_generator(text, std::string(where));
  }
  const bool like_a_call = word.size() < text.size() && word.find('/') == std::string_view::npos &&
                           !word.ends_with(".toml") && !word.ends_with(".json");
  const bool like_a_path =
      text.find('/') != std::string::npos || text.ends_with(".toml") || text.ends_with(".json");
  if (like_a_path && !like_a_call) return parse_cluster(read_cluster_text(text, where), text);
  std::vector<std::string> known;
  for (const ClusterEntry& entry : clusters()) known.push_back(entry.name);
  throw InputError(where, fmt::format("unknown cluster '{}'", text),
                   fmt::format("accepted: {}, or a file (.toml, .json, or with a /){}", join(known),
                               suggestion(word, known)));
}

}  // namespace parsim
