// Workspaces of a convolution library: the memory that its kernels use while they run, in addition
// to the tensors. parsim-hw writes the file, the memory verdict reads it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/units.hpp"

namespace parsim {

/// Of one device in one DAG. Kernels of a device run one after another and share the room.
struct Workspace {
  bool known = false;          ///< false: the library cannot plan for this device
  Bytes bytes{};               ///< the largest that any of its convolutions wants
  std::int64_t shapes = 0;     ///< different convolutions asked for
  std::int64_t unplanned = 0;  ///< of them, those for which the library has no kernel
  friend bool operator==(const Workspace&, const Workspace&) = default;
};

/// By DAG in the order asked for, then by device.
struct Workspaces {
  std::string library;  ///< with its version
  std::vector<std::vector<Workspace>> rows;
  friend bool operator==(const Workspaces&, const Workspaces&) = default;
};

[[nodiscard]] std::string to_json(const Workspaces& workspaces);
/// Throws InputError as in core/json.hpp.
[[nodiscard]] Workspaces workspaces_from_json(const std::string& text, const std::string& where);

}  // namespace parsim
