// A DAG prepared for simulation: successors of operations, kernel times, routes.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/cost_model.hpp"
#include "core/exec_dag.hpp"
#include "sim/collectives.hpp"

namespace parsim::sim {

/// The successors of every operation: those that may start when it ends.
///
/// In-order queues are part of it. An operation starts when it heads all its queues and its
/// predecessors have ended; queues are in id order and an operation leaves its queues when it ends;
/// so to head a queue is to wait for the operation before in that queue, one more predecessor.
/// (Operations' priorities are not looked at: they would make the order depend on time.)
struct Successors {
  std::vector<std::uint32_t> first;    ///< successors of i: list[first[i]] … list[first[i+1]-1]
  std::vector<std::int32_t> list;      ///< operation ids
  std::vector<std::uint32_t> waiting;  ///< by operation: how many it waits for

  [[nodiscard]] std::span<const std::int32_t> of(std::size_t op) const {
    return std::span(list).subspan(first[op], first[op + 1] - first[op]);
  }
};
[[nodiscard]] Successors successors(const ExecDag& dag, std::size_t devices);

/// A route of the cluster, numbered for the flow engine.
struct RouteTable {
  std::vector<const Route*> routes;

  /// Rings of a group; hop h of ring r is route first + r · n + h.
  struct Group {
    const GroupRings* rings = nullptr;
    std::size_t first = 0;
  };
  std::unordered_map<std::int32_t, Group> groups;        ///< by GroupId; looked up only
  std::unordered_map<std::uint64_t, std::size_t> pairs;  ///< by pair_key; looked up only
  /// Fidelity::macro: all links of a group's first ring as one route, the next rings' behind it.
  std::unordered_map<std::uint64_t, std::size_t> wholes;  ///< by whole_key; looked up only
  std::deque<Route> whole_routes;                         ///< never move

  [[nodiscard]] static std::uint64_t pair_key(DeviceId from, DeviceId to) {
    return (std::uint64_t{static_cast<std::uint32_t>(from.value)} << 32) |
           static_cast<std::uint32_t>(to.value);
  }
  /// A broadcast does not go back to its root, all others go all round.
  [[nodiscard]] static std::uint64_t whole_key(GroupId group, CollectiveKind kind) {
    return 2 * std::uint64_t{static_cast<std::uint32_t>(group.value)} +
           (kind == CollectiveKind::broadcast ? 1 : 0);
  }
  [[nodiscard]] std::size_t pair(DeviceId from, DeviceId to) const {
    return pairs.at(pair_key(from, to));
  }
};

/// A transfer or collective between different devices.
[[nodiscard]] bool communicates(const ExecDag& dag, OpId id);
/// Of a DAG with folded ranks, those that send what a transfer sends: how many, and the sender and
/// the receiver in one of them.
[[nodiscard]] inline std::size_t rank_count(const ExecDag& dag, std::int32_t device) {
  return dag.fold.ranks == nullptr ? 1 : dag.fold.ranks->units_like(DeviceId{device}).size();
}
[[nodiscard]] inline std::pair<DeviceId, DeviceId> ends(const ExecDag& dag,
                                                        const OpRecord& transfer,
                                                        std::size_t rank) {
  return dag.fold.ends(DeviceId{transfer.device}, DeviceId{transfer.to}, rank);
}
/// The device that an operation keeps busy; invalid for messages, and for delays, which do nothing.
[[nodiscard]] DeviceId kernel_device(const ExecDag& dag, OpId id);

/// Bytes that an operation's devices read and write; of a message, if they have one memory.
[[nodiscard]] double memory_traffic(const ExecDag& dag, OpId id);

/// What a message puts on the links.
struct OpFlow {
  std::size_t route = 0;  ///< index into the route table
  Bytes payload;
  Seconds wait{};  ///< after the operation's start
};

struct OpFlows {
  std::vector<OpFlow> flows;  ///< by wait
  Seconds longest_wait{};     ///< after the operation's start
  Seconds least{};            ///< and the least time that it then takes on any links
  /// Flows of the operation in each unit and rank of a folded DAG, which must all end at one time;
  /// none if they do for sure.
  std::vector<std::vector<std::uint32_t>> together{};
};

struct PreparedDag {
  Successors successors;
  /// By operation: how long it keeps its device busy; negative if it communicates.
  std::vector<double> seconds;
  std::vector<double> issued;  ///< by operation: when its hosts have launched it; none: at once
  /// By operation: bytes that it reads and writes; none unless devices share memory.
  std::vector<double> traffic;
  bool measured_messages =
      false;  ///< some communication has a measured time, which links do not explain
  RouteTable table;
  /// By operation: of a collective that runs as a library runs it the index of its choice, of a
  /// transfer that of its wait, -1 of others; none if all are ideal.
  std::vector<std::int32_t> library;
  std::vector<CollectiveChoice> choices;
  std::vector<Seconds> transfer_waits;

  // Of a merged DAG only (sim/merge.hpp):
  std::vector<std::int32_t> runs_as;  ///< by operation: the equal one that runs for it, or itself
  std::vector<OpFlows> flows;         ///< many operations have the same
  std::vector<std::int32_t>
      flows_of;  ///< by operation that runs and communicates: index into these

  [[nodiscard]] bool merged() const { return !runs_as.empty(); }
  [[nodiscard]] bool runs(std::size_t op) const {
    return !merged() || runs_as[op] == static_cast<std::int32_t>(op);
  }
};
[[nodiscard]] PreparedDag prepare(const ExecDag& dag, const CostModel& cost, PathCache& paths,
                                  const SimOptions& options);

}  // namespace parsim::sim
