// A cluster of which only some GPUs are used, or with one more machine.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/errors.hpp"
#include "topologies/topologies.hpp"

namespace parsim::topologies {

namespace {

/// Places a copy of every element of the machine `node` behind the last of them. Returns where they
/// begin and how many they are.
template <class Element>
std::pair<std::size_t, std::size_t> copy_behind(std::vector<Element>& all, NodeId node) {
  std::vector<Element> copies;
  std::size_t behind = 0;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i].node != node) continue;
    copies.push_back(all[i]);
    behind = i + 1;
  }
  all.insert(all.begin() + static_cast<std::ptrdiff_t>(behind), copies.begin(), copies.end());
  return {behind, copies.size()};
}

}  // namespace

Cluster only_devices(Cluster cluster, const std::vector<bool>& keep) {
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
  return only_devices(std::move(cluster), keep);
}

Cluster only_nodes(Cluster cluster, const std::vector<bool>& keep) {
  std::vector<bool> devices;
  for (const Device& device : cluster.devices) devices.push_back(keep[device.node.index()]);
  return only_devices(std::move(cluster), devices);
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
  return only_devices(std::move(cluster), keep);
}

std::optional<Cluster> with_one_more(Cluster cluster, NodeId node) {
  const auto node_of = [&](const Port& port) {
    const auto index = static_cast<std::size_t>(port.index);
    return port.kind == Port::Kind::device ? cluster.devices[index].node
                                           : cluster.switches[index].node;
  };
  std::vector<Link> links;
  bool leaves = false;
  for (const Link& link : cluster.links) {
    const NodeId a = node_of(link.a), b = node_of(link.b);
    if (a != node && b != node) continue;
    if (a != b && a.valid() && b.valid()) return std::nullopt;
    leaves |= a != b;
    links.push_back(link);
  }
  if (!leaves) return std::nullopt;
  // Positions of the machine's devices and switches, whose copies have the same order.
  const auto positions = [&](const auto& all) {
    std::vector<std::size_t> found(all.size(), all.size());
    std::size_t next = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (all[i].node == node) found[i] = next++;
    }
    return found;
  };
  const std::vector<std::size_t> device_positions = positions(cluster.devices);
  const std::vector<std::size_t> switch_positions = positions(cluster.switches);
  const auto [first_device, devices] = copy_behind(cluster.devices, node);
  const auto [first_switch, switches] = copy_behind(cluster.switches, node);
  const auto moved = [&](Port port, bool to_copy) {
    const bool device = port.kind == Port::Kind::device;
    const auto index = static_cast<std::size_t>(port.index);
    const std::size_t position = (device ? device_positions : switch_positions)[index];
    const std::size_t first = device ? first_device : first_switch;
    const bool own = position < (device ? device_positions : switch_positions).size();
    const std::size_t now = to_copy && own   ? first + position
                            : index >= first ? index + (device ? devices : switches)
                                             : index;
    port.index = static_cast<std::int32_t>(now);
    return port;
  };
  for (Link& link : cluster.links) {
    link.a = moved(link.a, false);
    link.b = moved(link.b, false);
  }
  const std::string old = cluster.nodes[node.index()].name;
  std::string name = old + "-more";
  const auto taken = [&](const Node& other) { return other.name == name; };
  while (std::any_of(cluster.nodes.begin(), cluster.nodes.end(), taken)) name += "+";
  const auto renamed = [&](const std::string& text) {
    return name + (text.starts_with(old) ? text.substr(old.size()) : "." + text);
  };
  for (Link& link : links) {
    link.a = moved(link.a, true);
    link.b = moved(link.b, true);
    link.name = name + ":" + link.name;
    cluster.links.push_back(std::move(link));
  }
  const NodeId copy{cluster.nodes.size()};
  cluster.nodes.push_back(cluster.nodes[node.index()]);
  cluster.nodes.back().name = name;
  for (std::size_t d = first_device; d < first_device + devices; ++d) {
    cluster.devices[d].name = renamed(cluster.devices[d].name);
    cluster.devices[d].node = copy;
  }
  for (std::size_t s = first_switch; s < first_switch + switches; ++s) {
    cluster.switches[s].name = renamed(cluster.switches[s].name);
    cluster.switches[s].node = copy;
  }
  validate(cluster, name);
  return cluster;
}

}  // namespace parsim::topologies
