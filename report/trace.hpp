// Chrome trace of a timeline, for chrome://tracing and Perfetto.
#pragma once

#include <span>
#include <string>

#include "core/cluster.hpp"
#include "core/exec_dag.hpp"
#include "core/framework.hpp"
#include "core/timeline.hpp"
#include "lowering/memory.hpp"

namespace parsim::report {

/// Trace Event Format: a process per device, a track per stream, sending and receiving apart, so
/// that no two events of a track overlap. Times are rounded to nanoseconds. Events carry layer,
/// pass and micro-batch; `cat` is the pass, "optimizer", "transfer", "collective", … Arrows lead
/// from senders to receivers of transfers. A counter of each device has what it sends and receives,
/// in GB/s: of an operation its bytes over its time, of a collective what bytes_received() counts,
/// equally among its members. With `memory`, by device id, another counter has the memory in GiB:
/// `states` is weights, gradients, optimizer states and buffers, which stay for the whole step,
/// `activations` those of experiment::memory_over_time() under `framework`.
/// With a measured timeline a device is two processes, the predicted one above the measured one.
/// Source: "Trace Event Format", Google, complete events ("X"), flows ("s", "f"), counters ("C")
/// and metadata ("M").
[[nodiscard]] std::string chrome_trace(const ExecDag& dag, const Cluster& cluster,
                                       const Timeline& predicted,
                                       const Timeline* measured = nullptr,
                                       std::span<const lowering::MemoryUse> memory = {},
                                       Framework framework = Framework::pytorch);

/// Throws InputError at `flag` for a step that 64-bit numbers of `unit` do not hold.
///
/// name   of the unit
void check_trace_length(const Timeline& timeline, std::string_view flag, Seconds unit,
                        std::string_view name);

/// Name of a queue's track: "compute", "gradient send".
[[nodiscard]] std::string track_name(std::int32_t queue);

/// What an operation is, in words: "conv1 forward, micro-batch 2".
[[nodiscard]] std::string operation_name(const ExecDag& dag, OpId id);

}  // namespace parsim::report
