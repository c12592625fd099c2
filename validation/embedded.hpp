// The files that are built into the program: claims of papers, published measurements, aliases.
#pragma once

#include <span>

#include "core/embedded.hpp"

namespace parsim::validation {

/// By name.
[[nodiscard]] std::span<const EmbeddedFile> validation_files();

}  // namespace parsim::validation
