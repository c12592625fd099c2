// The order in which an execution DAG goes to hardware: which lane (a CUDA stream, a thread) runs
// each operation, and which events it waits for first. The stream and order rules are the
// simulator's: an operation starts when it heads all its queues and its predecessors have ended.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/dag_traffic.hpp"
#include "core/exec_dag.hpp"

namespace parsim::hw {

/// An operation on one lane. A collective has one turn per member; a transfer one, or one at each
/// of its devices where processes have a device each; everything else one.
struct Turn {
  OpId op;
  std::int32_t lane = -1;
  std::uint32_t first_wait = 0, waits = 0;  ///< in Dispatch::waits
  bool recorded = false;                    ///< another lane waits for its end
};

/// A DAG's operations on lanes. Issuing turns in their order never blocks for ever: they wait for
/// earlier turns only, and members of a collective meet in one order everywhere.
struct Dispatch {
  /// The sending or computing queues that have work, in the order of their first operation.
  std::vector<Queue> lanes;
  std::vector<Turn> turns;                ///< by operation, members in the group's order
  std::vector<std::uint32_t> first_turn;  ///< by operation, and one more for the end
  /// Turns of other lanes whose end must be waited for: those that the lane's own order and its
  /// earlier waits do not imply.
  std::vector<std::uint32_t> waits;

  [[nodiscard]] std::span<const Turn> turns_of(OpId op) const {
    return std::span(turns).subspan(first_turn[op.index()],
                                    first_turn[op.index() + 1] - first_turn[op.index()]);
  }
  [[nodiscard]] std::span<const std::uint32_t> waits_of(const Turn& turn) const {
    return std::span(waits).subspan(turn.first_wait, turn.waits);
  }
};
[[nodiscard]] Dispatch dispatch(const ExecDag& dag);
/// What a process does that has one device to itself: the turns on that device's lanes. A transfer
/// between devices has a turn at its sender and one at its receiver, which meet in it. Throws
/// InputError if an operation comes after one that none of its devices takes part in: processes
/// hear of each other by messages only.
[[nodiscard]] Dispatch dispatch(const ExecDag& dag, DeviceId mine);

/// Issues the DAG to a backend, which has
///
///     void wait(lane, turn)     the lane goes on when that turn, of another lane, has ended
///     void run(op, turns)       the operation, on the lanes of its turns
///     void record(turn)         the end of a turn becomes an event, before anything waits for it
template <class Backend>
void issue(const ExecDag& dag, const Dispatch& order, Backend& backend) {
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const std::span<const Turn> turns = order.turns_of(OpId{i});
    for (const Turn& turn : turns) {
      for (const std::uint32_t wait : order.waits_of(turn)) backend.wait(turn.lane, wait);
    }
    backend.run(OpId{i}, turns);
    for (std::size_t t = 0; t < turns.size(); ++t) {
      if (turns[t].recorded) backend.record(order.first_turn[i] + static_cast<std::uint32_t>(t));
    }
  }
}

}  // namespace parsim::hw
