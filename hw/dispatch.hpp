// The order in which an execution DAG goes to hardware: which stream (of a GPU; or a
// thread) runs each operation, and which events it waits for first. The stream and order rules are
// the simulator's: an operation starts when it heads all its queues and its predecessors have
// ended.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/dag_traffic.hpp"
#include "core/exec_dag.hpp"

namespace parsim::hw {

/// Which streams a transfer between devices is on: its sender's, or also one of its receiver, where
/// libraries' messages are sent and received.
enum class TransferEnds : std::uint8_t { sender, both };

/// An operation on one stream. A collective has one per member, a transfer between devices one or
/// two (TransferEnds), everything else one.
struct StreamOp {
  OpId op;
  std::int32_t stream = -1;
  std::uint32_t first_wait = 0, waits = 0;  ///< in Dispatch::waits
  bool recorded = false;                    ///< another stream waits for its end
};

/// A DAG's operations on streams. Issuing them in their order never blocks for ever: of those that
/// have not ended the one with the least id can, because what it waits for, and what stands before
/// it on any of its streams, has a smaller id. So members of an operation meet in one order
/// everywhere, collectives and transfers alike.
struct Dispatch {
  /// The queues that have work, in the order of their first operation: computing, sending, and
  /// receiving ones if transfers have both ends.
  std::vector<Queue> streams;
  std::vector<StreamOp> stream_ops;            ///< by operation, members in the group's order
  std::vector<std::uint32_t> first_stream_op;  ///< by operation, and one more for the end
  /// Operations of other streams whose end must be waited for: those that the stream's own order
  /// and its earlier waits do not imply.
  std::vector<std::uint32_t> waits;

  [[nodiscard]] std::span<const StreamOp> stream_ops_of(OpId op) const {
    return std::span(stream_ops)
        .subspan(first_stream_op[op.index()],
                 first_stream_op[op.index() + 1] - first_stream_op[op.index()]);
  }
  [[nodiscard]] std::span<const std::uint32_t> waits_of(const StreamOp& stream_op) const {
    return std::span(waits).subspan(stream_op.first_wait, stream_op.waits);
  }
};
[[nodiscard]] Dispatch dispatch(const ExecDag& dag, TransferEnds ends = TransferEnds::sender);
/// What a process does that has one device to itself: the operations on that device's streams, of
/// transfers between devices its own end. Throws
/// InputError if an operation comes after one that none of its devices takes part in: processes
/// hear of each other by messages only.
[[nodiscard]] Dispatch dispatch(const ExecDag& dag, DeviceId mine);

/// Devices whose queues an operation occupies, each once.
[[nodiscard]] std::vector<DeviceId> devices_of(const ExecDag& dag, OpId op);

/// Issues the DAG to a backend, which has
///
///     void wait(stream, stream_op)   the stream waits for the end of that one, of another stream
///     void run(op, stream_ops)       the operation, on the streams of its stream operations
///     void record(stream_op)         its end becomes an event, before anything waits for it
template <class Backend>
void issue(const ExecDag& dag, const Dispatch& order, Backend& backend) {
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const std::span<const StreamOp> stream_ops = order.stream_ops_of(OpId{i});
    for (const StreamOp& stream_op : stream_ops) {
      for (const std::uint32_t wait : order.waits_of(stream_op))
        backend.wait(stream_op.stream, wait);
    }
    backend.run(OpId{i}, stream_ops);
    for (std::size_t t = 0; t < stream_ops.size(); ++t) {
      if (stream_ops[t].recorded)
        backend.record(order.first_stream_op[i] + static_cast<std::uint32_t>(t));
    }
  }
}

}  // namespace parsim::hw
