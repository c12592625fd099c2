#include "core/cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <unordered_set>

#include "core/errors.hpp"

namespace parsim {

namespace {

/// Refuses empty and repeated names. Names live in one set because a link's end may be either a
/// device or a switch.
class Names {
 public:
  Names(const std::string& where, std::size_t count) : where_(where) { seen_.reserve(count); }

  void add(std::string_view kind, std::size_t index, const std::string& name) {
    if (name.empty()) {
      throw InputError(where_, fmt::format("{} number {} has an empty name", kind, index + 1),
                       "every name needs at least one character");
    }
    if (!seen_.insert(name).second) {
      throw InputError(where_, fmt::format("{} name '{}' occurs twice", kind, name),
                       "names must be unique");
    }
  }

 private:
  const std::string& where_;
  std::unordered_set<std::string_view> seen_;
};

template <class Vector>
bool in_range(std::int32_t index, const Vector& owner) {
  return index >= 0 && static_cast<std::size_t>(index) < owner.size();
}

void check_names(const Cluster& cluster, const std::string& where) {
  Names ports(where, cluster.devices.size() + cluster.switches.size());
  Names nodes(where, cluster.nodes.size()), links(where, cluster.links.size());
  Names models(where, cluster.models.size());
  for (std::size_t i = 0; i < cluster.nodes.size(); ++i) {
    nodes.add("node", i, cluster.nodes[i].name);
  }
  for (std::size_t i = 0; i < cluster.devices.size(); ++i) {
    ports.add("device", i, cluster.devices[i].name);
  }
  for (std::size_t i = 0; i < cluster.switches.size(); ++i) {
    ports.add("switch", i, cluster.switches[i].name);
  }
  for (std::size_t i = 0; i < cluster.links.size(); ++i) {
    links.add("link", i, cluster.links[i].name);
  }
  for (std::size_t i = 0; i < cluster.models.size(); ++i) {
    models.add("device type", i, cluster.models[i].name);
  }
}

bool positive(double value) { return std::isfinite(value) && value > 0; }

void check_models(const Cluster& cluster, const std::string& where) {
  for (const DeviceModel& model : cluster.models) {
    const bool peaks = std::all_of(model.peak.begin(), model.peak.end(),
                                   [](FlopsPerSecond peak) { return positive(peak.value); });
    const bool fp8 = model.fp8_peak.value == 0 || positive(model.fp8_peak.value);
    if (!peaks || !fp8 || !positive(model.memory_rate.value) || model.memory.value <= 0) {
      throw InputError(
          where, fmt::format("device type '{}' has a number that is not positive", model.name),
          "peaks, memory rate and memory must be positive");
    }
  }
  for (const Device& device : cluster.devices) {
    if (!in_range(device.model, cluster.models)) {
      throw InputError(where, fmt::format("device '{}' has no device type", device.name),
                       "every device needs the index of a device type");
    }
    if (!in_range(device.node.value, cluster.nodes)) {
      throw InputError(where, fmt::format("device '{}' is in no node", device.name),
                       "every device stands in a node");
    }
    if (device.memory.value <= 0) {
      throw InputError(where, fmt::format("device '{}' has no memory", device.name),
                       "memory must be positive");
    }
  }
  for (const Switch& switch_ : cluster.switches) {
    if (switch_.node.valid() && !in_range(switch_.node.value, cluster.nodes)) {
      throw InputError(where, fmt::format("switch '{}' is in a node that is missing", switch_.name),
                       "a switch stands in a node of the cluster, or in none");
    }
  }
}

void check_links(const Cluster& cluster, const std::string& where) {
  const auto exists = [&](Port port) {
    return port.kind == Port::Kind::device ? in_range(port.index, cluster.devices)
                                           : in_range(port.index, cluster.switches);
  };
  for (const Link& link : cluster.links) {
    if (!exists(link.a) || !exists(link.b)) {
      throw InputError(where, fmt::format("link '{}' ends nowhere", link.name),
                       "both ends must be devices or switches of the cluster");
    }
    if (link.a == link.b) {
      throw InputError(where, fmt::format("link '{}' leads back to where it starts", link.name),
                       "the ends of a link must differ");
    }
    if (!positive(link.rate.value)) {
      throw InputError(where, fmt::format("link '{}' has rate {} B/s", link.name, link.rate.value),
                       "rates must be positive and finite");
    }
    if (!std::isfinite(link.latency.count()) || link.latency.count() < 0) {
      throw InputError(where,
                       fmt::format("link '{}' has latency {} s", link.name, link.latency.count()),
                       "latencies must not be negative, and finite");
    }
    if (link.provenance >= 0 && !in_range(link.provenance, cluster.provenances)) {
      throw InputError(where, fmt::format("link '{}' has a source that is missing", link.name),
                       "the source must be one of the cluster's");
    }
  }
}

/// Groups of switches that reach each other; result[i] is the group of switch i, numbered by its
/// smallest member.
std::vector<std::size_t> switch_islands(const Cluster& cluster) {
  std::vector<std::size_t> parent(cluster.switches.size());
  std::iota(parent.begin(), parent.end(), std::size_t{0});
  const auto root = [&](std::size_t i) {
    while (parent[i] != i) i = parent[i] = parent[parent[i]];
    return i;
  };
  for (const Link& link : cluster.links) {
    if (link.a.kind == Port::Kind::device || link.b.kind == Port::Kind::device) continue;
    const auto [low, high] = std::minmax({root(static_cast<std::size_t>(link.a.index)),
                                          root(static_cast<std::size_t>(link.b.index))});
    parent[high] = low;
  }
  for (std::size_t i = 0; i < parent.size(); ++i) parent[i] = root(i);
  return parent;
}

/// Devices do not forward, so two of them meet over a direct cable or over an island of switches
/// that both hang on. It is not enough that the graph is connected.
void check_reachable(const Cluster& cluster, const std::string& where) {
  const std::size_t count = cluster.devices.size();
  const std::vector<std::size_t> island = switch_islands(cluster);
  std::vector<std::vector<std::size_t>> islands_of(count), members(cluster.switches.size()),
      neighbours(count);
  const auto attach = [&](Port device, Port other) {
    const auto d = static_cast<std::size_t>(device.index);
    const auto o = static_cast<std::size_t>(other.index);
    if (other.kind == Port::Kind::device) {
      neighbours[d].push_back(o);
    } else if (std::find(islands_of[d].begin(), islands_of[d].end(), island[o]) ==
               islands_of[d].end()) {
      islands_of[d].push_back(island[o]);
      members[island[o]].push_back(d);
    }
  };
  for (const Link& link : cluster.links) {
    if (link.a.kind == Port::Kind::device) attach(link.a, link.b);
    if (link.b.kind == Port::Kind::device) attach(link.b, link.a);
  }
  // The usual case first: one network to which all nodes are attached.
  if (std::any_of(members.begin(), members.end(),
                  [&](const auto& devices) { return devices.size() == count; })) {
    return;
  }
  std::vector<std::size_t> reached_from(count, count);
  for (std::size_t from = 0; from < count; ++from) {
    reached_from[from] = from;
    for (const std::size_t to : neighbours[from]) reached_from[to] = from;
    for (const std::size_t group : islands_of[from]) {
      for (const std::size_t to : members[group]) reached_from[to] = from;
    }
    for (std::size_t to = 0; to < count; ++to) {
      if (reached_from[to] == from) continue;
      throw InputError(where,
                       fmt::format("device '{}' cannot reach device '{}'",
                                   cluster.devices[from].name, cluster.devices[to].name),
                       "join them by a link, or by links to switches that are joined (a device "
                       "forwards nothing for others)");
    }
  }
}

}  // namespace

std::vector<DeviceId> devices_of(const Cluster& cluster, DeviceKind kind) {
  std::vector<DeviceId> found;
  for (std::size_t i = 0; i < cluster.devices.size(); ++i) {
    if (cluster.model(DeviceId{i}).kind == kind) found.emplace_back(i);
  }
  return found;
}

NodeId machine_of(const Cluster& cluster, Port port) {
  const auto index = static_cast<std::size_t>(port.index);
  return port.kind == Port::Kind::device ? cluster.devices[index].node
                                         : cluster.switches[index].node;
}

bool is_on(const Cluster& cluster, LinkId link, const std::vector<bool>& computes) {
  const auto off = [&](Port port) {
    const NodeId machine = machine_of(cluster, port);
    return machine.valid() && !computes[machine.index()];
  };
  return !off(cluster[link].a) && !off(cluster[link].b);
}

void validate(const Cluster& cluster, const std::string& where) {
  if (cluster.devices.empty()) {
    throw InputError(where, fmt::format("cluster '{}' has no devices", cluster.name),
                     "at least one device");
  }
  check_names(cluster, where);
  check_models(cluster, where);
  check_links(cluster, where);
  check_reachable(cluster, where);
}

}  // namespace parsim
