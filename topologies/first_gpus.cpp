// A cluster of which only some GPUs are used.
#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "topologies/topologies.hpp"

namespace parsim {

Cluster first_gpus(Cluster cluster, std::size_t count, const std::string& where) {
  std::vector<std::int32_t> renumbered;
  std::vector<Device> kept;
  std::size_t gpus = 0;
  for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
    const bool drop = cluster.model(DeviceId{d}).kind == DeviceKind::gpu && gpus++ >= count;
    renumbered.push_back(drop ? -1 : static_cast<std::int32_t>(kept.size()));
    if (!drop) kept.push_back(cluster.devices[d]);
  }
  if (count == 0 || gpus < count) {
    throw InputError(where, fmt::format("{} GPUs of '{}', which has {}", count, cluster.name, gpus),
                     fmt::format("accepted: 1 to {}", gpus));
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

}  // namespace parsim
