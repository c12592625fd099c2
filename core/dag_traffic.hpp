// What the operations of a DAG move, and the queues they wait in.
#pragma once

#include <compare>
#include <cstdint>
#include <vector>

#include "core/exec_dag.hpp"

namespace parsim {

/// Bus over algorithm bandwidth: 2(n-1)/n for all_reduce, (n-1)/n for all_gather, reduce_scatter
/// and all_to_all, 1 for broadcast. Source: nccl-tests, doc/PERFORMANCE.md.
[[nodiscard]] double bus_factor(CollectiveKind kind, std::size_t devices);

/// Payload bytes that devices receive when the operation runs, independent of algorithm and
/// fidelity: transfer: payload; all_reduce 2(n−1)·S; all_gather, reduce_scatter (n−1)·S over all
/// regions' bytes S; broadcast (n−1)·S; all_to_all: what travels. Others 0.
[[nodiscard]] Bytes bytes_received(const ExecDag& dag, OpId id);
/// Sum of bytes_received over the DAG: the `bytes_moved` of reports.
[[nodiscard]] Bytes bytes_moved(const ExecDag& dag);
/// Point-to-point messages when collectives run as rings: transfer 1, all_reduce 2n(n−1),
/// all_gather and reduce_scatter n(n−1), broadcast n−1, all_to_all: the non-empty pairs.
[[nodiscard]] std::int64_t messages(const ExecDag& dag);

/// An in-order queue of a device: queue `2·(stream) + side`, side 0 = compute or sending,
/// 1 = receiving.
struct Queue {
  DeviceId device;
  std::int32_t queue = 0;
  friend auto operator<=>(const Queue&, const Queue&) = default;
};
inline constexpr std::int32_t queues_per_device = 2 * static_cast<std::int32_t>(stream_count);
/// The queues an operation occupies from start to end: one for compute, update, local and delay;
/// sender's and receiver's for a transfer; both sides of every member for a collective.
void queues(const ExecDag& dag, OpId id, std::vector<Queue>& out);

}  // namespace parsim
