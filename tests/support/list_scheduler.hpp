// A second scheduler, for checks: the same rules as the simulator without its network. Written
// another way on purpose — real queues and an event loop — so that both are wrong only if two
// people's ideas are.
#pragma once

#include <vector>

#include "core/cost_model.hpp"
#include "core/exec_dag.hpp"
#include "core/timeline.hpp"

namespace parsim {

/// When every operation would start and end if each took exactly durations[i]: it starts as soon as
/// it heads all its queues and its predecessors have ended. Throws BrokenInvariant if it gets
/// stuck.
[[nodiscard]] std::vector<Span> list_schedule(const ExecDag& dag,
                                              const std::vector<Seconds>& durations);

/// Durations on an otherwise idle cluster.
[[nodiscard]] std::vector<Seconds> durations_alone(const ExecDag& dag, const CostModel& cost);

}  // namespace parsim
