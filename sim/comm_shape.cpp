// How NCCL sees a group of devices, and the path of a message.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "core/errors.hpp"
#include "core/link_kind.hpp"
#include "sim/coefficients.hpp"
#include "sim/collectives.hpp"

namespace parsim::sim {

namespace {

/// The kind that decides a path's fixed costs: of the network if there is one, else of its first
/// link with a kind.
std::optional<LinkKind> kind_of(const Cluster& cluster, const Route& route) {
  std::optional<LinkKind> found;
  for (const Hop hop : route.hops) {
    const std::optional<LinkKind>& kind = cluster[hop.link].kind;
    if (!kind) continue;
    if (family_of(*kind) == LinkFamily::network) return kind;
    if (!found || family_of(*kind) != LinkFamily::nvlink) found = kind;
  }
  return found;
}

bool is_guessed(const Cluster& cluster, const Route& route) {
  return std::any_of(route.hops.begin(), route.hops.end(),
                     [&](const Hop hop) { return cluster[hop.link].kind_guessed; });
}

/// By its kind if one was given; `otherwise` where it is guessed.
bool is_nvlink(std::optional<LinkKind> kind, bool guessed, bool otherwise) {
  return kind && !guessed && family_of(*kind) != LinkFamily::network
             ? family_of(*kind) == LinkFamily::nvlink
             : otherwise;
}

/// What NCCL takes an NVLink to carry, as a share of its data sheet (src/graph/topo.h, NVLINK_BW).
double share_in_search(LinkKind kind) {
  switch (kind) {
    case LinkKind::nvlink1:
      return 18.0 / 20;
    case LinkKind::nvlink4:
      return 20.6 / 25;
    case LinkKind::nvlink5:
      return 40.1 / 50;
    case LinkKind::nvlink2:
    case LinkKind::nvlink3:
      return 20.0 / 25;
    case LinkKind::pcie3:
    case LinkKind::pcie4:
    case LinkKind::pcie5:
    case LinkKind::pcie3_host:
    case LinkKind::pcie4_host:
    case LinkKind::pcie5_host:
    case LinkKind::infiniband:
    case LinkKind::roce:
    case LinkKind::efa:
    case LinkKind::tcp:
    case LinkKind::slingshot:
      return 1;
  }
  throw BrokenInvariant("a link kind outside its enum");
}

}  // namespace

/// Of all nodes if they have no room for so many ranks (parts of GPUs).
std::int32_t PathCache::fewest_nodes(std::int32_t ranks) {
  if (gpus_.empty()) {
    std::map<NodeId, std::int32_t> counts;
    for (const DeviceId gpu : devices_of(cluster_, DeviceKind::gpu)) ++counts[cluster_[gpu].node];
    for (const auto& [node, count] : counts) gpus_.push_back(count);
    std::sort(gpus_.begin(), gpus_.end(), std::greater<>());
  }
  std::int32_t nodes = 0;
  for (const std::int32_t count : gpus_) {
    if (ranks <= 0) break;
    ranks -= count;
    ++nodes;
  }
  return std::max(nodes, 1);
}

const CommShape& PathCache::shape(std::span<const DeviceId> group) {
  const auto [entry, fresh] =
      shapes_.try_emplace(std::vector<DeviceId>(group.begin(), group.end()), CommShape{});
  CommShape& shape = entry->second;
  if (!fresh || group.size() < 2) return shape;
  std::map<NodeId, std::vector<DeviceId>> by_node;
  std::set<std::string> kinds;
  double least = std::numeric_limits<double>::infinity();
  bool sockets = true;
  for (const DeviceId device : group) {
    const DeviceModel& model = cluster_.model(device);
    by_node[cluster_[device].node].push_back(device);
    shape.gpus = shape.gpus && model.kind == DeviceKind::gpu;
    kinds.insert(model.architecture);
    least = std::min(least, assumed_capability(model));
    sockets = sockets && is_module(model);
    const double memory = model.memory_rate.value;
    if (shape.memory_rate == 0 || memory < shape.memory_rate) shape.memory_rate = memory;
  }
  // Of machines with as many members the one with the slowest links inside: which of them a cluster
  // lists first decides nothing.
  const auto inside_rate = [&](const std::vector<DeviceId>& members) {
    return members.size() < 2 ? 0 : between(members[0], members[1]).rate.value;
  };
  const auto most = std::max_element(by_node.begin(), by_node.end(), [&](auto& a, auto& b) {
    return std::pair(a.second.size(), -inside_rate(a.second)) <
           std::pair(b.second.size(), -inside_rate(b.second));
  });
  shape.ranks = static_cast<std::int32_t>(group.size());
  shape.fewest_nodes = fewest_nodes(shape.ranks);
  shape.nodes = static_cast<std::int32_t>(by_node.size());
  shape.architecture = least;
  shape.one_kind = kinds.size() == 1;
  shape.rate = rings(group).rate;
  shape.switched = true;
  const Link* inside_link = nullptr;
  bool guessed = false;
  std::optional<LinkKind> within;  // PCIe anywhere slows a ring down to it
  for (const Ring& ring : rings(group).rings) {
    for (std::size_t i = 0; i < ring.hops.size(); ++i) {
      const DeviceId next = ring.devices[(i + 1) % ring.devices.size()];
      const bool inside = cluster_[ring.devices[i]].node == cluster_[next].node;
      Seconds& longest = inside ? shape.inside_latency : shape.network_latency;
      longest = std::max(longest, ring.hops[i].latency);
      const std::optional<LinkKind> kind = kind_of(cluster_, ring.hops[i]);
      guessed = guessed || (inside && is_guessed(cluster_, ring.hops[i]));
      if (inside && cluster_[next].node == most->first)
        inside_link = &cluster_[ring.hops[i].hops.front().link];
      std::optional<LinkKind>& decides = inside ? within : shape.kind;
      if (kind && (!decides || family_of(*kind) > family_of(*decides))) decides = kind;
      shape.switched = shape.switched && (!inside || ring.hops[i].hops.size() > 1);
    }
  }
  const bool alone = most->second.size() < 2;
  shape.inside_rate = alone ? shape.rate : rings(most->second).rate;
  shape.nvlink = is_nvlink(within, guessed, sockets || shape.inside_rate > fastest_pcie.value);
  if (!shape.kind) shape.kind = within;
  shape.search_rate = shape.inside_rate;
  if (inside_link != nullptr && shape.nvlink && inside_link->line_rate.value > 0) {
    shape.search_rate *= share_in_search(*inside_link->kind) * inside_link->line_rate.value /
                         inside_link->rate.value;
  }
  // One channel per NVLink of a GPU, of the rate that NCCL counts on; Hopper's graphs use fewer and
  // faster ones (12 x 30 GB/s).
  const double channel = least < 7 ? 18e9 : least < 9 ? 20e9 : least < 10 ? 30e9 : 40e9;
  shape.channels =
      shape.nvlink
          ? std::max(2, static_cast<std::int32_t>(std::lround(shape.search_rate / channel)))
          : 2;
  return shape;
}

Seconds transfer_wait(DeviceId from, DeviceId to, Bytes payload, PathCache& paths,
                      const SimOptions& options) {
  const Cluster& cluster = paths.cluster();
  const Route& route = paths.between(from, to);
  const DeviceModel &a = cluster.model(from), &b = cluster.model(to);
  const bool gpus = a.kind == DeviceKind::gpu && b.kind == DeviceKind::gpu;
  if (options.collectives == CollectiveCost::ideal || !gpus) return route.latency;
  if (are_parts_of_one_gpu(std::array{from, to}, options)) return route.latency;
  const bool sockets = is_module(a) && is_module(b);
  const std::optional<LinkKind> kind = kind_of(cluster, route);
  const MessagePath path{
      cluster[from].node == cluster[to].node,
      is_nvlink(kind, is_guessed(cluster, route), sockets || route.rate > fastest_pcie),
      route.latency, kind};
  return std::max(route.latency, message_wait(path, payload, options.terms));
}

}  // namespace parsim::sim
