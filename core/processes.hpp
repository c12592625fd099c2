// What processes that work for this one need: pipes, and whether one may be forked at all.
#pragma once

#include <cstddef>
#include <span>

namespace parsim {

/// Whether this process has one thread only. One with several must not fork without exec: the child
/// would find locks as another thread left them.
[[nodiscard]] bool has_one_thread();

/// Fills `data` from a file or pipe; returns how much of it came before the end or an error.
std::size_t read_all(int from, std::span<std::byte> data);
/// False on an error, of which errno has the reason. A pipe whose other end is closed raises
/// SIGPIPE unless that is ignored or blocked.
[[nodiscard]] bool write_all(int to, std::span<const std::byte> data);

}  // namespace parsim
