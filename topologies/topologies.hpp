// The catalogue of clusters: named machines, generators, TOML and JSON files.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/cluster.hpp"

namespace parsim::topologies {

struct ClusterEntry {
  std::string name;     ///< "dgx-v100", or "star" for a generator
  std::string summary;  ///< one line; for generators with their options
};

/// Named machines first, then generators.
[[nodiscard]] const std::vector<ClusterEntry>& clusters();

/// A named machine, a generator call ("star:8,device=p100-sxm2,rate=25GB/s,latency=1us") or a file:
/// .toml, .json, or anything with a '/'; NCCL's topology XML, the text of nvidia-smi topo -m and
/// SimGrid's platform XML are known by their content, and ",device=NAME" after such a file says
/// what its GPUs are. `notes` receives what was guessed. Throws InputError: location, what was
/// found, what is accepted, did-you-mean.
[[nodiscard]] Cluster load_cluster(const std::string& name_call_or_path, std::string_view where,
                                   std::vector<std::string>* notes = nullptr);

/// Gives all links whose name matches the pattern ("n0.*") this power or idle power, "10 W". Throws
/// InputError with `where` if there is none, for an idle power above the power, and for one without
/// a power.
void set_link_power(Cluster& cluster, std::string_view pattern,
                    const std::optional<std::string>& power, const std::optional<std::string>& idle,
                    const std::string& where);

/// The JSON Schema of cluster files.
[[nodiscard]] std::string cluster_schema();

/// The cluster as a platform file of SimGrid, with routes between all devices, which
/// load_cluster() reads back as the same cluster, without prices, and powers of devices as in the
/// device table. Throws InputError with `where` for more devices than such a file can sensibly hold
/// (1024).
[[nodiscard]] std::string simgrid_xml(const Cluster& cluster, std::string_view where);

/// The device table. Throws InputError with a did-you-mean for an unknown name.
[[nodiscard]] const std::vector<DeviceModel>& device_models();
[[nodiscard]] const DeviceModel& device_model(std::string_view name, std::string_view where);
/// The name in the device table of what a driver calls "NVIDIA H100 80GB HBM3"; "" if unknown.
[[nodiscard]] std::string_view model_of_product(std::string_view product);

/// The cluster with only its first `count` GPUs: the others and their links are gone, everything
/// else stays. Throws InputError with `where` if it has fewer.
[[nodiscard]] Cluster first_gpus(Cluster cluster, std::size_t count, const std::string& where);
/// The same with the devices of the nodes that are kept, by NodeId.
[[nodiscard]] Cluster only_nodes(Cluster cluster, const std::vector<bool>& keep);
/// The same without the devices that are not kept, by DeviceId.
[[nodiscard]] Cluster only_devices(Cluster cluster, const std::vector<bool>& keep);
/// The same with the first counts[n] GPUs of node n; of further nodes none.
[[nodiscard]] Cluster first_gpus_of_nodes(Cluster cluster, const std::vector<std::size_t>& counts,
                                          const std::string& where);

/// The cluster with one more machine like `node`, which follows it in the order of devices: with
/// the same devices, switches and links to what stands between machines. Nothing where a link joins
/// the machine with another one, so that it is open where the cables of a third would go, and where
/// no link leaves the machine.
[[nodiscard]] std::optional<Cluster> with_one_more(Cluster cluster, NodeId node);

}  // namespace parsim::topologies
