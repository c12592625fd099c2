// The flows of the units that a folded DAG leaves out.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/exec_dag.hpp"
#include "sim/prepared_dag.hpp"

namespace parsim::sim {

/// Gives communications within the kept units the flows of all units of their classes: the same
/// bytes after the same waits, over the same hops of each. For units that do the same, as far as is
/// known, but share links with communications that differ.
class UnitFlows {
 public:
  /// The table gets the ways of other units. Both must outlive this.
  UnitFlows(const AlikeUnits& units, RouteTable& table);

  /// Appends the flows of the other units. `op` is in each unit.
  void add_others(const ExecDag& dag, OpId op, OpFlows& flows);

 private:
  [[nodiscard]] std::size_t image(std::size_t route, std::size_t unit);

  const AlikeUnits& units_;
  RouteTable& table_;
  std::vector<std::unordered_map<std::uint32_t, Hop>> hops_;  ///< by unit and the kept one's hop
  std::unordered_map<std::uint64_t, std::size_t> images_;     ///< looked up only
};

/// Which flows of an operation of a folded DAG must end together, if the operation of each unit,
/// and the message of each rank, is to end when the others do: one of a kind, the flows of a kind
/// being those of one unit, or of a transfer one flow. `kinds` are of the flows as they are in the
/// list; `runs_as`: by flow, which one runs for it. Empty if all kinds have the same ones.
[[nodiscard]] std::vector<std::vector<std::uint32_t>> flows_that_end_together(
    const std::vector<std::int32_t>& kinds, const std::vector<std::uint32_t>& runs_as);

}  // namespace parsim::sim
