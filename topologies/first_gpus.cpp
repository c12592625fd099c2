// A cluster of which only some GPUs are used.
#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "topologies/topologies.hpp"

namespace parsim::topologies {

namespace {

/// Without the devices that are not kept, and their links.
Cluster with_devices(Cluster cluster, const std::vector<bool>& keep) {
  std::vector<std::int32_t> renumbered;
  std::vector<Device> kept;
  for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
    renumbered.push_back(keep[d] ? static_cast<std::int32_t>(kept.size()) : -1);
    if (keep[d]) kept.push_back(cluster.devices[d]);
  }
  const auto dropped = [&](Port& port) {
    if (port.kind != Port::Kind::device) return false;
    port.index = renumbered[static_cast<std::size_t>(port.index)];
    return port.index < 0;
  };
  std::erase_if(cluster.links, [&](Link& link) {
    const bool a = dropped(link.a), b = dropped(link.b);
    return a || b;
  });
  cluster.devices = std::move(kept);
  return cluster;
}

}  // namespace

Cluster first_gpus(Cluster cluster, std::size_t count, const std::string& where) {
  std::vector<bool> keep;
  std::size_t gpus = 0;
  for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
    keep.push_back(cluster.model(DeviceId{d}).kind != DeviceKind::gpu || gpus++ < count);
  }
  if (count == 0 || gpus < count) {
    throw InputError(where, fmt::format("{} GPUs of '{}', which has {}", count, cluster.name, gpus),
                     fmt::format("accepted: 1 to {}", gpus));
  }
  return with_devices(std::move(cluster), keep);
}

Cluster only_nodes(Cluster cluster, const std::vector<bool>& keep) {
  std::vector<bool> devices;
  for (const Device& device : cluster.devices) devices.push_back(keep[device.node.index()]);
  return with_devices(std::move(cluster), devices);
}

Cluster first_gpus_of_nodes(Cluster cluster, const std::vector<std::size_t>& counts,
                            const std::string& where) {
  std::vector<bool> keep;
  std::vector<std::size_t> seen(std::max(cluster.nodes.size(), counts.size()), 0);
  for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
    const std::size_t node = cluster.devices[d].node.index();
    const bool gpu = cluster.model(DeviceId{d}).kind == DeviceKind::gpu;
    keep.push_back(!gpu || (node < counts.size() && seen[node] < counts[node]));
    if (gpu) ++seen[node];
  }
  for (std::size_t n = 0; n < counts.size(); ++n) {
    if (counts[n] > 0 && counts[n] <= seen[n]) continue;
    throw InputError(where,
                     fmt::format("{} GPUs of machine {} of '{}', which has {}", counts[n], n,
                                 cluster.name, seen[n]),
                     fmt::format("accepted: 1 to {}", seen[n]));
  }
  return with_devices(std::move(cluster), keep);
}

}  // namespace parsim::topologies
