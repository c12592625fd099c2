// Text files that are built into the program, so that it needs none at run time. Written by
// cmake/embed.cmake.
#pragma once

#include <string_view>

namespace parsim {

struct EmbeddedFile {
  std::string_view path;  ///< from the repository's root: "topologies/clusters/dgx-v100.toml"
  std::string_view text;
};

}  // namespace parsim
