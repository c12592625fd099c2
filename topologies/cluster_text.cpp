// Reads the text of a cluster file of any format.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "core/errors.hpp"
#include "core/files.hpp"
#include "topologies/cluster_file.hpp"
#include "topologies/document.hpp"

namespace parsim::topologies {

namespace {

/// Refuses a misspelt key after a file name: "topo.txt,devic=t4".
void refuse_unknown_key(const std::string& path, std::string_view where) {
  const std::size_t comma = path.find(',', path.rfind('/') + 1), equals = path.find('=', comma);
  if (comma == std::string::npos || equals == std::string::npos) return;
  const std::string key = path.substr(comma + 1, equals - comma - 1);
  throw InputError(
      where, fmt::format("unknown key '{}' after the file '{}'", key, path.substr(0, comma)),
      fmt::format("accepted: device{}", did_you_mean(key, std::vector<std::string>{"device"})));
}

}  // namespace

std::string read_cluster_text(const std::string& path, std::string_view where) {
  constexpr std::size_t largest = 64 << 20;
  std::error_code ignored;
  std::ifstream stream(path, std::ios::binary);
  if (std::filesystem::is_directory(path, ignored)) {
    throw InputError(where, fmt::format("'{}' is a directory", path),
                     "accepted: a file with a cluster in TOML or JSON");
  }
  if (!stream) {
    refuse_unknown_key(path, where);
    throw InputError(where, fmt::format("cannot read the file '{}'", path),
                     "accepted: a cluster in TOML or JSON");
  }
  // Not by the file's size: it may be a pipe or a device.
  std::string text(1 << 16, '\0');
  std::size_t length = 0;
  while (stream.read(text.data() + length, static_cast<std::streamsize>(text.size() - length)),
         stream.gcount() > 0) {
    length += static_cast<std::size_t>(stream.gcount());
    if (length > largest) {
      throw InputError(where, fmt::format("the file '{}' is larger than 64 MiB", path),
                       "accepted: a cluster in TOML or JSON");
    }
    if (length == text.size()) text.resize(2 * text.size());
  }
  text.resize(length);
  return std::string(without_byte_order_mark(text));
}

}  // namespace parsim::topologies
