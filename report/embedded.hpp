// The files that are built into the program: style and scripts of the report page, JSON Schemas.
#pragma once

#include <span>

#include "core/embedded.hpp"

namespace parsim::report {

/// style.css, table.js, what only pages with timelines have (timeline.css, timeline.js), and the
/// schemas.
[[nodiscard]] std::span<const EmbeddedFile> report_files();

}  // namespace parsim::report
