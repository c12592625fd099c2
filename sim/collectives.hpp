// Collectives as flows over rings: how many bytes cross which hop of which ring, and after how much
// latency. Knows nothing of SimGrid; the executor runs these flows, the cost models price them.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "core/exec_dag.hpp"
#include "core/routes.hpp"
#include "sim/nccl.hpp"

namespace parsim::sim {

/// The rings of a group and how a payload is divided among them.
struct GroupRings {
  std::vector<Ring> rings;  ///< none for a group of one
  /// members[ring][position] = position in the group of rings[ring].devices[position]
  std::vector<std::vector<std::size_t>> members;
  /// Share of the payload by ring, adds up to 1: proportional to the rate of the ring's slowest
  /// hop, where a link that k of the rings' hops cross gives each a k-th.
  std::vector<double> weights;
  double rate = 0;  ///< of all rings together, bytes/s
};

/// Rings and routes of one cluster, found once. Holds a reference to the cluster.
class PathCache {
 public:
  explicit PathCache(const Cluster& cluster) : cluster_(cluster), routes_(cluster) {}

  /// References stay valid as long as this object lives.
  const Route& between(DeviceId from, DeviceId to) { return routes_.between(from, to); }
  const GroupRings& rings(std::span<const DeviceId> group);
  /// How NCCL sees the group.
  const CommShape& shape(std::span<const DeviceId> group);
  [[nodiscard]] const Cluster& cluster() const { return cluster_; }

 private:
  [[nodiscard]] std::int32_t fewest_nodes(std::int32_t ranks);

  const Cluster& cluster_;
  Routes routes_;
  std::map<std::vector<DeviceId>, GroupRings> rings_;
  std::map<std::vector<DeviceId>, CommShape> shapes_;
  std::vector<std::int32_t> gpus_;  ///< of each node, most first; empty until a shape is asked for
};

/// What a collective carries, in bytes.
struct CollectivePayload {
  CollectiveKind kind = CollectiveKind::all_reduce;
  Bytes total;
  /// all_gather, reduce_scatter: bytes of each member's region, in group order; empty = equal parts
  std::vector<Bytes> shares;
};

/// A flow over hop `hop` of ring `ring`, that starts `wait` after the collective does.
struct HopFlow {
  std::size_t ring = 0, hop = 0;
  Bytes payload;
  Seconds wait{};
  friend bool operator==(const HopFlow&, const HopFlow&) = default;
};

/// A whole ring collective as one flow per hop, all at once. The hop from position r to r+1 of a
/// ring of n, with chunk sizes s by position and latency α, carries
///
///     all_gather       total − s(r+1)             after (n−1)·α
///     reduce_scatter   total − s(r)               after (n−1)·α
///     all_reduce       2·total − s(r) − s(r+1)    after 2(n−1)·α
///     broadcast        total, all hops but the one back to the root, after the sum of their α
///
/// which of equal chunks is the same for every hop, rounded to bytes (so that equal ranks stay
/// equal; the messages below leave the remainder in one chunk), because chunk c starts at position
/// c+1, is reduced all the way round to c, and from there goes round again. In a ring the slowest
/// hop limits the rate of all messages, and max-min sharing treats n steady streams and n flows of
/// the same volume alike; so the last flow ends when the last message of the step-by-step ring
/// arrives (checked: tests/sim/collectives_test.cpp).
///
/// Source of the ring: Patarasuk & Yuan 2009. Not for all_to_all.
[[nodiscard]] std::vector<HopFlow> hop_flows(const CollectivePayload& payload,
                                             const GroupRings& rings);

/// The same step by step: bytes of message `step` over each hop.
struct RingMessages {
  std::size_t steps = 0;             ///< messages over each hop, one after another
  std::vector<Bytes> chunks;         ///< by position
  std::size_t first_all_gather = 0;  ///< the step with which the gathering half begins

  /// Message `step` of the hop out of `position`. It may start when the message before it has left
  /// and message step−1 of the hop into `position` has arrived.
  [[nodiscard]] Bytes payload(std::size_t step, std::size_t position) const;
};
/// By ring. For all_reduce, all_gather and reduce_scatter.
[[nodiscard]] std::vector<RingMessages> ring_messages(const CollectivePayload& payload,
                                                      const GroupRings& rings);

/// hop_flows as a library runs them: each flow waits for the latency of the choice and carries its
/// part of the traffic. `ideal` leaves them unchanged.
[[nodiscard]] std::vector<HopFlow> hop_flows(const CollectivePayload& payload,
                                             const GroupRings& rings,
                                             const CollectiveChoice& choice);
/// The bytes of a flow that links carry.
[[nodiscard]] Bytes part_carried(Bytes payload, const CollectiveChoice& choice);
/// Whether all devices are parts of one GPU (SimOptions::shared_gpus).
[[nodiscard]] bool are_parts_of_one_gpu(std::span<const DeviceId> devices,
                                        const SimOptions& options);
/// What the options make of a collective: the table's time, NCCL's, or nothing beyond the links.
/// For all_to_all: pairwise messages of one group (sim/nccl.hpp, message_wait).
[[nodiscard]] CollectiveChoice choose(CollectiveKind kind, std::span<const DeviceId> group,
                                      Bytes payload, PathCache& paths, const SimOptions& options);

/// How long a transfer waits before its bytes flow: the route's latency, or between GPUs what a
/// library needs (sim/nccl.hpp, message_wait) if that is longer.
[[nodiscard]] Seconds transfer_wait(DeviceId from, DeviceId to, Bytes payload, PathCache& paths,
                                    const SimOptions& options);

/// Payload of one pair of an all_to_all; positions in the group.
struct PairFlow {
  std::size_t from = 0, to = 0;
  Bytes payload;
  friend bool operator==(const PairFlow&, const PairFlow&) = default;
};
/// needs_to ∩ regions_from for every pair of different members that is not empty, by receiver, then
/// sender.
[[nodiscard]] std::vector<PairFlow> pair_flows(const ExecDag& dag, const Shares& shares, Role role);

/// Bytes of each member's region.
[[nodiscard]] std::vector<Bytes> share_bytes(const ExecDag& dag, const Shares& shares, Role role);

/// A flow among others that start together.
struct LoneFlow {
  const Route* route = nullptr;
  double bytes = 0;
  Seconds wait{};
};
/// Time of flows on an otherwise idle network, a lower bound of what the simulator gives:
///
///     max over links and waits w of   w + (bytes over the link of flows that wait w or longer) /
///     rate and, over the flows,            wait + least
///
/// For rings over separate links it is what the simulator gives.
[[nodiscard]] Seconds time_alone(std::span<const LoneFlow> flows, Seconds least,
                                 const Cluster& cluster);

/// What links need for the flows of a collective with equal shares that all start at once: they
/// take no longer, and for rings over separate links no less. The hops of a ring get at least the
/// ring's part of the rate; for pairs of equal size time_alone is exact.
[[nodiscard]] Seconds time_on_links(CollectiveKind kind, std::span<const DeviceId> group,
                                    Bytes payload, PathCache& paths);

/// How long a pair of an all_to_all waits: the choice's wait, and what its route has beyond that.
[[nodiscard]] Seconds pair_wait(const CollectiveChoice& choice, const Route& route);

/// time_alone of a collective with equal shares.
[[nodiscard]] Seconds collective_time(CollectiveKind kind, std::span<const DeviceId> group,
                                      Bytes payload, PathCache& paths,
                                      const SimOptions& options = {});

}  // namespace parsim::sim
