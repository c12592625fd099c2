// Runs a function in a forked child process and brings its results back.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

namespace parsim::sim {

/// Calls `work` in a forked child. What it leaves in `results` — memory of plain data that the
/// caller owns — is then found there in this process too; nothing else it does is seen here.
///
/// Other threads of the caller may run meanwhile: the child has only the calling one, the C library
/// keeps memory usable in it, and `work` must wait for nothing else that a thread may hold, such as
/// the loader (SimGrid is loaded before).
///
/// Throws SimulationError if work throws one; RefusedByMachine if memory or a process is lacking or
/// the child dies by a signal or exits early; BrokenInvariant if work throws anything else.
void run_in_child(const std::function<void()>& work, std::span<const std::span<std::byte>> results);

/// The bytes of a vector of plain data.
template <class T>
[[nodiscard]] std::span<std::byte> bytes_of(std::vector<T>& data) {
  return std::as_writable_bytes(std::span<T>(data));
}

}  // namespace parsim::sim
