// The files that are built into the program: the device table and the named machines. Written by
// cmake/embed.cmake at build time.
#pragma once

#include <span>
#include <string_view>

namespace parsim {

struct EmbeddedFile {
  std::string_view path;  ///< "topologies/clusters/dgx-v100.toml"
  std::string_view text;
};

/// The device table first, then the machines by name.
[[nodiscard]] std::span<const EmbeddedFile> embedded_files();

}  // namespace parsim
