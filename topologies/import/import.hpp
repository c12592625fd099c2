// Clusters from files of foreign tools: NCCL's topology XML, what nvidia-smi topo -m prints,
// SimGrid's platform XML. What a file does not have (rates, types of GPUs) is guessed, with a note.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster.hpp"
#include "topologies/import/xml.hpp"

namespace parsim::topologies {

/// What the caller knows and the file may not.
struct ImportOptions {
  const DeviceModel* device = nullptr;  ///< the type of all GPUs; null: what the file suggests
};

struct Imported {
  Cluster cluster;
  std::vector<std::string> notes;  ///< what was left out or guessed
};

/// The cluster of a foreign file, recognised by its content; nothing if it is none of the formats.
/// `file` is its name for messages, and names the cluster. Throws InputError with file and line.
[[nodiscard]] std::optional<Imported> import_cluster(std::string_view text, const std::string& file,
                                                     const ImportOptions& options);

/// One machine from `NCCL_TOPO_DUMP_FILE`: <system> around <cpu>, <pci>, <gpu>, <nvlink>, <nic>.
[[nodiscard]] Imported import_nccl(const Element& root, const std::string& file,
                                   const ImportOptions& options);
/// One machine from `nvidia-smi topo -m`, with the output of `nvidia-smi -L` before it or not.
[[nodiscard]] Imported import_nvidia_smi(std::string_view text, const std::string& file,
                                         const ImportOptions& options);
/// A platform of SimGrid, DTD version 4: zones of hosts, links and routes.
[[nodiscard]] Imported import_simgrid(const Element& root, const std::string& file,
                                      const ImportOptions& options);

}  // namespace parsim::topologies
