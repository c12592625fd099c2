// The order in which the slots of a schedule are issued, shared by lowering and estimating.
#pragma once

#include <vector>

#include "core/network.hpp"
#include "core/plan.hpp"

namespace parsim {

/// Every slot of the schedule once, each after the slots it depends on: forward after the forward
/// of the stages it reads, backward after its own forward and the backward of the stages that read
/// it. One slot a lane a round, so that the issue order resembles the order in time; a stage spread
/// over several lanes comes when it is every lane's turn. Throws InputError naming the lane that
/// waits for ever if there is no such order.
[[nodiscard]] std::vector<Slot> issue_order(const Network& network, const Schedule& schedule);

}  // namespace parsim
