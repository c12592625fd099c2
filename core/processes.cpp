#include "core/processes.hpp"

#include <dirent.h>
#include <unistd.h>

#include <cerrno>
#include <memory>

namespace parsim {

bool has_one_thread() {
  const std::unique_ptr<DIR, int (*)(DIR*)> threads(::opendir("/proc/self/task"), ::closedir);
  if (!threads) return false;
  std::size_t entries = 0;  // "." and ".." among them
  while (::readdir(threads.get()) != nullptr) ++entries;
  return entries <= 3;
}

std::size_t read_all(int from, std::span<std::byte> data) {
  std::size_t filled = 0;
  while (filled < data.size()) {
    const ssize_t count = ::read(from, data.data() + filled, data.size() - filled);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    filled += static_cast<std::size_t>(count);
  }
  return filled;
}

bool write_all(int to, std::span<const std::byte> data) {
  while (!data.empty()) {
    const ssize_t count = ::write(to, data.data(), data.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    data = data.subspan(static_cast<std::size_t>(count));
  }
  return true;
}

}  // namespace parsim
