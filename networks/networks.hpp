// The catalogue of networks: built-in ones by name, ONNX files by path.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/network.hpp"

namespace parsim {

struct NetworkEntry {
  std::string name, summary;
  Network (*build)();
};

[[nodiscard]] const std::vector<NetworkEntry>& networks();

/// A built-in network by name, or the ONNX file at a path (anything with a '/' or ending in
/// ".onnx"). dims   values for symbolic dimensions of an ONNX file ("batch" -> 32) Throws
/// InputError: unknown name (with did-you-mean), unreadable file, or whatever the reader refuses.
[[nodiscard]] Network load_network(const std::string& name_or_path,
                                   const std::map<std::string, std::int64_t>& dims,
                                   std::string_view where);

/// Reads an ONNX training or inference graph. Every unknown operator, unbound dimension or broken
/// part is refused by name (InputError). A Loss is appended to the graph's first output.
[[nodiscard]] Network read_onnx(const std::string& path,
                                const std::map<std::string, std::int64_t>& dims);

}  // namespace parsim
