// The order in which the slots of a schedule are issued, shared by lowering and estimating.
#pragma once

#include <vector>

#include "core/network.hpp"
#include "core/plan.hpp"

namespace parsim::lowering {

/// Every slot of the schedule once, each after the slots it depends on: forward after the forward
/// of the stages it reads, backward after its own forward and the backward of the stages that read
/// it, weight gradients that are split off after their backward. Each round takes one slot of every
/// rank list, so that the issue order resembles the order in time, and none of a round depends on
/// another; a slot of several rank lists is issued when it is next in all of them. Throws
/// InputError naming the rank list that waits for ever if there is no such order.
[[nodiscard]] std::vector<std::vector<Slot>> issue_order(const Network& network,
                                                         const Schedule& schedule);

}  // namespace parsim::lowering
