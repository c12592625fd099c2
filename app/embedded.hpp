// The files that are built into the program: the list of packages.
#pragma once

#include <span>

#include "core/embedded.hpp"

namespace parsim::app {

[[nodiscard]] std::span<const EmbeddedFile> app_files();

}  // namespace parsim::app
