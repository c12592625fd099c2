// Runs a function in a forked child process and brings its results back.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace parsim::sim {

/// Calls `work` in a forked child. What it leaves in `results` — memory of plain data that the
/// caller owns — is then found there in this process too; nothing else it does is seen here.
///
/// For processes with one thread (core/processes.hpp); in others a simulation has SimGrid in a
/// program of its own (sim/simgrid_process.hpp).
///
/// Throws SimulationError if work throws one; RefusedByMachine if memory or a process is lacking or
/// the child dies by a signal or exits early; BrokenInvariant if work throws anything else.
void run_in_child(const std::function<void()>& work, std::span<const std::span<std::byte>> results);

/// Waits for a child's end; returns its status.
int wait_for(pid_t child);
/// Waits for a child. Throws RefusedByMachine if a signal ended it, or if what came from it is not
/// complete.
void end_of_child(pid_t child, bool complete);

/// The bytes of a vector of plain data.
template <class T>
[[nodiscard]] std::span<std::byte> bytes_of(std::vector<T>& data) {
  return std::as_writable_bytes(std::span<T>(data));
}

}  // namespace parsim::sim
