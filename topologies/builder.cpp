#include "topologies/builder.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"

namespace parsim::topologies {

ClusterBuilder::ClusterBuilder(std::string name, std::string where) : where_(std::move(where)) {
  cluster_.name = std::move(name);
}

ClusterBuilder::ClusterBuilder(Cluster cluster, std::string where)
    : cluster_(std::move(cluster)), where_(std::move(where)) {
  for (const Link& link : cluster_.links) ++link_names_[link.name];
}

void ClusterBuilder::refuse_beyond(std::size_t count, std::int64_t most,
                                   std::string_view what) const {
  if (count < static_cast<std::size_t>(most)) return;
  throw InputError(where_, fmt::format("more than {} {}", most, what),
                   fmt::format("accepted: at most {} {}", most, what));
}

NodeId ClusterBuilder::add_node(std::string name) {
  refuse_beyond(cluster_.nodes.size(), most_devices, "nodes");
  cluster_.nodes.push_back({std::move(name)});
  return NodeId{cluster_.nodes.size() - 1};
}

std::int32_t ClusterBuilder::add_model(const DeviceModel& model) {
  auto& models = cluster_.models;
  const auto found = std::find(models.begin(), models.end(), model);
  if (found != models.end()) return static_cast<std::int32_t>(found - models.begin());
  models.push_back(model);
  return static_cast<std::int32_t>(models.size() - 1);
}

DeviceId ClusterBuilder::add_device(std::string name, const DeviceModel& model, NodeId node,
                                    std::optional<Bytes> memory) {
  refuse_beyond(cluster_.devices.size(), most_devices, "devices");
  cluster_.devices.push_back(
      {std::move(name), add_model(model), node, memory.value_or(model.memory), model.upkeep});
  return DeviceId{cluster_.devices.size() - 1};
}

SwitchId ClusterBuilder::add_switch(std::string name, NodeId node) {
  refuse_beyond(cluster_.switches.size(), most_switches, "switches");
  cluster_.switches.push_back({std::move(name), node});
  return SwitchId{cluster_.switches.size() - 1};
}

std::int32_t ClusterBuilder::add_provenance(const Provenance& provenance) {
  auto& all = cluster_.provenances;
  const auto found = std::find(all.begin(), all.end(), provenance);
  if (found != all.end()) return static_cast<std::int32_t>(found - all.begin());
  all.push_back(provenance);
  return static_cast<std::int32_t>(all.size() - 1);
}

const std::string& ClusterBuilder::name_of(Port port) const {
  const auto index = static_cast<std::size_t>(port.index);
  return port.kind == Port::Kind::device ? cluster_.devices[index].name
                                         : cluster_.switches[index].name;
}

void ClusterBuilder::add_link(Port a, Port b, BytesPerSecond rate, Seconds latency,
                              std::int32_t provenance, std::int64_t cables) {
  const std::string ends = fmt::format("{}-{}", name_of(a), name_of(b));
  for (std::int64_t i = 0; i < cables; ++i) {
    refuse_beyond(cluster_.links.size(), most_links, "links");
    std::int64_t number = ++link_names_[ends];
    std::string name = ends;
    // Names of devices may themselves contain '-' and '#', so "a-b#2" may be taken already.
    while (number > 1 &&
           !link_names_.emplace(name = fmt::format("{}#{}", ends, number), 1).second) {
      number = ++link_names_[ends];
    }
    cluster_.links.push_back({std::move(name), a, b, rate, latency, provenance});
  }
}

void ClusterBuilder::add_link_of(LinkKind kind, Port a, Port b, BytesPerSecond line_rate,
                                 Seconds latency, std::int32_t provenance, std::int64_t cables) {
  const std::size_t first = cluster_.links.size();
  add_link(a, b, effective_rate(kind, line_rate), latency, provenance, cables);
  for (std::size_t i = first; i < cluster_.links.size(); ++i) {
    cluster_.links[i].kind = kind;
    cluster_.links[i].line_rate = line_rate;
  }
}

void ClusterBuilder::add_link(std::optional<LinkKind> kind, Port a, Port b, BytesPerSecond rate,
                              Seconds latency, std::int32_t provenance, std::int64_t cables) {
  if (!kind) return add_link(a, b, rate, latency, provenance, cables);
  add_link_of(*kind, a, b, rate, latency, provenance, cables);
}

Cluster ClusterBuilder::finish() && {
  validate(cluster_, where_);
  guess_link_kinds(cluster_);
  return std::move(cluster_);
}

}  // namespace parsim::topologies
