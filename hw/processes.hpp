// What the processes of one launch, each with the device of its rank, tell each other besides the
// tensors that they exchange.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "hw/dispatch.hpp"
#include "hw/hardware.hpp"
#include "hw/rendezvous.hpp"

namespace parsim::hw {

/// Returns when all have come.
void meet(Rendezvous& rendezvous);

/// Does something in every process. Where it fails in one, it fails in all: throws the same there,
/// and at the others an error of the same exit code that names the rank.
void together(Rendezvous& rendezvous, const std::function<void()>& work);

/// By step, the longest that any process took; at every process.
[[nodiscard]] std::vector<Seconds> slowest(Rendezvous& rendezvous,
                                           const std::vector<Seconds>& times);

/// Whole steps from every process's spans of the stream operations that it has: an operation begins
/// when the last of its devices comes to it and ends with the last of them. At rank 0; nothing
/// elsewhere.
[[nodiscard]] std::vector<Timeline> whole_steps(Rendezvous& rendezvous, const Dispatch& own,
                                                const std::vector<Timeline>& parts);

/// A machine of all processes' devices, in the order of their ranks, hanging on one switch by links
/// of the first one's rate and latency. Throws HardwareError if they differ in backend or versions.
[[nodiscard]] Machine whole_machine(Rendezvous& rendezvous, const Machine& mine);

}  // namespace parsim::hw
