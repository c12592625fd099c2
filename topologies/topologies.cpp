#include "topologies/topologies.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "topologies/document.hpp"
#include "topologies/generator.hpp"

namespace parsim {

namespace {

std::vector<std::string> names() {
  std::vector<std::string> found;
  for (const ClusterEntry& entry : clusters()) found.push_back(entry.name);
  return found;
}

}  // namespace

const std::vector<ClusterEntry>& clusters() {
  static const std::vector<ClusterEntry> table = [] {
    std::vector<ClusterEntry> entries;
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
  const auto generator =
      std::find_if(generators().begin(), generators().end(),
                   [&](const Generator& candidate) { return candidate.name == word; });
  if (generator != generators().end()) {
    return generator->build(GeneratorCall(*generator, text, std::string(where)));
  }
  const std::vector<std::string> known = names();
  throw InputError(where, fmt::format("unknown cluster '{}'", text),
                   fmt::format("accepted: {}, or a file{}", join(known), suggestion(word, known)));
}

}  // namespace parsim
