// The hosts and routes of a replay by SimGrid's SMPI (sim/smpi.hpp), as a platform file.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "sim/collectives.hpp"

namespace parsim::sim {

/// Hosts by index: first the cluster's devices, then those that stand for a device in a ring that
/// leaves the usual routes, since SimGrid knows one route between two hosts.
class SmpiPlatform {
 public:
  /// Holds references to both.
  SmpiPlatform(const Cluster& cluster, PathCache& paths);

  [[nodiscard]] const std::string& host(std::size_t index) const { return hosts_[index]; }
  [[nodiscard]] std::size_t host_count() const { return hosts_.size(); }

  /// Whether the ring goes from device to device as other messages do.
  [[nodiscard]] bool is_usual(const Ring& ring) const;
  /// Hosts by position for ring `ring` of a group, added with the ring's routes when first asked
  /// for. The ring must outlive this object.
  const std::vector<std::size_t>& ring_hosts(GroupId group, std::size_t ring, const Ring& way);
  /// Messages go from one host to another: a ring's to the next or to its device's, or within a
  /// host, or between devices.
  void use_route(std::size_t from, std::size_t to);

  /// The XML of all that is used. `ranks`: by host, how many; each has a core of its own.
  [[nodiscard]] std::string text(const std::vector<std::size_t>& ranks, double host_speed) const;

 private:
  const Cluster& cluster_;
  PathCache& paths_;
  std::vector<std::string> hosts_;
  std::map<std::pair<std::int32_t, std::size_t>, std::vector<std::size_t>> ring_hosts_;
  const std::vector<Hop> here_;  ///< no links: within a device
  std::map<std::pair<std::size_t, std::size_t>, const std::vector<Hop>*> routes_;
};

}  // namespace parsim::sim
