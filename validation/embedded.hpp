// The files that are built into the program: the papers' claims, published measurements,
// and names that others use.
#pragma once

#include <span>

#include "core/embedded.hpp"

namespace parsim {

/// By name.
[[nodiscard]] std::span<const EmbeddedFile> validation_files();

}  // namespace parsim
