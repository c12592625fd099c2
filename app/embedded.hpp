// The files that are built into the program: style and scripts of the report page, the JSON
// Schemas, and the list of packages.
#pragma once

#include <span>

#include "core/embedded.hpp"

namespace parsim {

/// style.css, table.js, and what only pages with timelines have: timeline.css, timeline.js.
[[nodiscard]] std::span<const EmbeddedFile> app_files();

}  // namespace parsim
