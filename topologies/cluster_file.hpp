// Clusters from TOML or JSON; the schema is in topologies/README.md.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/cluster.hpp"

namespace parsim::topologies {

/// The cluster that a text describes. `file` is its name for messages and its format: JSON if it
/// ends in .json or the text begins with '{', else TOML. `notes`, unless null, receives what was
/// guessed about imported nodes. Throws InputError with file, line and key.
[[nodiscard]] Cluster parse_cluster(std::string_view text, const std::string& file,
                                    std::vector<std::string>* notes = nullptr);

/// The key `summary` of a TOML text; empty if absent.
[[nodiscard]] std::string summary_of(std::string_view text, const std::string& file);

/// The whole file. Throws InputError naming `where` if there is none, or it is not a file, or
/// larger than 64 MiB.
[[nodiscard]] std::string read_cluster_text(const std::string& path, std::string_view where);

}  // namespace parsim::topologies
