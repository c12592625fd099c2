// The reference: everything that there is to choose from, as Markdown, from the program's own
// tables.
#pragma once

#include <string>

namespace parsim::app {

/// docs/cli.md. A test says whether that file is up to date.
[[nodiscard]] std::string reference_markdown();

}  // namespace parsim::app
