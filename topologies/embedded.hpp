// The files that are built into the program: the device table and the named machines.
#pragma once

#include <span>

#include "core/embedded.hpp"

namespace parsim::topologies {

/// The device table first, then the machines by name.
[[nodiscard]] std::span<const EmbeddedFile> topologies_files();

}  // namespace parsim::topologies
