// Puts a cluster together piece by piece; generators and the file reader build with it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "core/cluster.hpp"

namespace parsim::topologies {

/// About the largest machines that exist; keeps a typo ("star:1000000") from exhausting the memory.
inline constexpr std::int64_t most_devices = 131'072;
inline constexpr std::int64_t most_switches = 262'144;
inline constexpr std::int64_t most_links = 1'048'576;

class ClusterBuilder {
 public:
  /// `where` is the location in messages about the whole cluster.
  ClusterBuilder(std::string name, std::string where);
  /// Goes on with a cluster that exists.
  ClusterBuilder(Cluster cluster, std::string where);

  NodeId add_node(std::string name);
  /// `memory` defaults to the model's.
  DeviceId add_device(std::string name, const DeviceModel& model, NodeId node,
                      std::optional<Bytes> memory = std::nullopt);
  /// Without a node it stands between machines.
  SwitchId add_switch(std::string name, NodeId node = {});
  /// The index of an equal provenance, added if new.
  std::int32_t add_provenance(const Provenance& provenance);
  /// `cables` parallel cables, named after their ends: "a-b", "a-b#2", …
  void add_link(Port a, Port b, BytesPerSecond rate, Seconds latency, std::int32_t provenance,
                std::int64_t cables = 1);
  /// The same of a known kind, of whose data-sheet rate its share is left (core/link_kind.hpp).
  void add_link_of(LinkKind kind, Port a, Port b, BytesPerSecond line_rate, Seconds latency,
                   std::int32_t provenance, std::int64_t cables = 1);
  /// Either, as a generator's `kind=` says.
  void add_link(std::optional<LinkKind> kind, Port a, Port b, BytesPerSecond rate, Seconds latency,
                std::int32_t provenance, std::int64_t cables = 1);

  /// The cluster so far, not checked.
  [[nodiscard]] const Cluster& cluster() const { return cluster_; }
  [[nodiscard]] const std::string& name_of(Port port) const;

  /// The index of an equal model, added if new.
  std::int32_t add_model(const DeviceModel& model);
  /// For changes after the fact (overrides).
  [[nodiscard]] Cluster& change() { return cluster_; }

  /// The cluster, checked.
  [[nodiscard]] Cluster finish() &&;

 private:
  void refuse_beyond(std::size_t count, std::int64_t most, std::string_view what) const;

  Cluster cluster_;
  std::string where_;
  /// Names of links that are taken, each with how many cables were named after it.
  std::unordered_map<std::string, std::int64_t> link_names_;
};

}  // namespace parsim::topologies
