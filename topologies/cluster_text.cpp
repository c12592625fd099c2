// Reads a cluster file as a whole, whatever it holds.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "core/errors.hpp"
#include "topologies/cluster_file.hpp"

namespace parsim {

std::string read_cluster_text(const std::string& path, std::string_view where) {
  constexpr std::size_t largest = 64 << 20;
  std::error_code ignored;
  std::ifstream stream(path, std::ios::binary);
  if (std::filesystem::is_directory(path, ignored)) {
    throw InputError(where, fmt::format("'{}' is a directory", path),
                     "a file with a cluster in TOML or JSON");
  }
  if (!stream) {
    throw InputError(where, fmt::format("cannot read the file '{}'", path),
                     "a cluster in TOML or JSON");
  }
  // Not by the file's size: it may be a pipe or a device.
  std::string text(1 << 16, '\0');
  std::size_t length = 0;
  while (stream.read(text.data() + length, static_cast<std::streamsize>(text.size() - length)),
         stream.gcount() > 0) {
    length += static_cast<std::size_t>(stream.gcount());
    if (length > largest) {
      throw InputError(where, fmt::format("the file '{}' is larger than 64 MiB", path),
                       "a cluster in TOML or JSON");
    }
    if (length == text.size()) text.resize(2 * text.size());
  }
  text.resize(length);
  return text;
}

}  // namespace parsim
