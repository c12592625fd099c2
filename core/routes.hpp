// Ways through a cluster: the path between two devices, and rings over a group of devices.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/cluster.hpp"

namespace parsim {

/// The hops from one device to another with what they amount to.
struct Route {
  std::vector<Hop> hops;  ///< empty from a device to itself
  Seconds latency{};      ///< sum over the hops
  BytesPerSecond rate{};  ///< of the slowest hop; infinite for an empty route
};

/// A cable from a device to a switch.
struct SwitchCable {
  SwitchId to;
  Hop hop;
};

/// Shortest paths of a cluster, found on demand and remembered. Fewest hops first, then the larger
/// bottleneck rate, then the smaller latency; among equals (parallel cables, the stages of a fat
/// tree) one is chosen by the destination's id, digit by digit, as fat trees are routed (D-mod-k):
/// a shift of all devices by the same distance is free of contention. Deterministic. Holds a
/// reference to the cluster. Not thread-safe.
class Routes {
 public:
  explicit Routes(const Cluster& cluster);
  ~Routes();
  Routes(const Routes&) = delete;
  Routes& operator=(const Routes&) = delete;

  /// Throws InputError if there is no path.
  const Route& between(DeviceId from, DeviceId to);
  /// The cables from a device to other devices, by link.
  [[nodiscard]] std::vector<Hop> cables_of(DeviceId device) const;
  /// The cable of a device that has one, to a switch.
  [[nodiscard]] std::optional<SwitchCable> only_cable(DeviceId device) const;
  /// The hops from one switch to another one, if one shortest path leads there: for any devices
  /// with such a cable to each, the route is the first's cable, these hops and the other's cable.
  /// Null if there are several or none. Stays valid.
  const std::vector<Hop>* only_way(SwitchId from, SwitchId to);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A cyclic order of a group's devices; `hops[i]` is the way from devices[i] to devices[i+1].
struct Ring {
  std::vector<DeviceId> devices;
  std::vector<Route> hops;
};

/// Rings over the group that share as few directed links as possible: the more of them run at once,
/// the more of the links work. Where devices are wired directly to each other (cube mesh),
/// edge-disjoint Hamiltonian cycles over single cables in both directions; over several nodes one
/// ring per network card (of the node with the fewest), each leaving the node next to a card of
/// its own, entering next to one, and passing a node's devices along another such cycle where they
/// are wired; otherwise a single ring. Machines follow one another in node order, or, if that
/// crosses a link between them twice, in one along links (ring_order.hpp) where that is faster:
/// NCCL takes them in the order of ranks, which schedulers give to neighbours (Slurm's topology
/// plugins: a Hilbert curve in a 3-D torus). At least one ring for two or more devices, none for
/// one.
[[nodiscard]] std::vector<Ring> edge_disjoint_rings(const Cluster& cluster, Routes& routes,
                                                    std::span<const DeviceId> group);

}  // namespace parsim
