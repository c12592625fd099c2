// Which hops of a route may decide the rates of flows: what merging must look at.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "core/cluster.hpp"
#include "core/exec_dag.hpp"
#include "sim/color.hpp"
#include "sim/flow_lists.hpp"
#include "sim/prepared_dag.hpp"

namespace parsim::sim {

struct Communication {
  OpId op;
  std::size_t list = 0;  ///< of its flows
  Seconds longest_wait{}, least{};
  bool within = false;  ///< a unit of a folded DAG: each other unit has the same
};

/// What decides the rates of a route's flows.
struct RouteHops {
  /// Of the hops of all routes, one route after another: whether the hop may decide its flows'
  /// rates, is open. The others carry so few flows at once that a fair share of them is the rate of
  /// the route's slowest hop or more: in a max-min allocation a flow whose bottleneck is such a hop
  /// has the rate that its slowest hop gives it alone, so that neither what else the hop carries
  /// nor the hop itself is of concern to it. (The hop's other flows may well mind this one: links
  /// still take the colours of all their flows.)
  std::vector<bool> open;
  std::vector<Color> slowest;  ///< by route: the rate of its slowest hop
};

/// steady   no link changes its rate; else all hops are open
[[nodiscard]] RouteHops route_hops(const ExecDag& dag, const Cluster& cluster,
                                   const RouteTable& table,
                                   std::span<const Communication> communications,
                                   const FlowLists& lists, bool steady);

}  // namespace parsim::sim
