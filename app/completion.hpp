// What bash and man(1) can know about the command line, made from the program's own tables.
#pragma once

#include <string>
#include <string_view>

namespace parsim::app {

/// Completion of verbs, options and their values, for `. <(parsim completion bash)`.
[[nodiscard]] std::string bash_completion();
/// The manual page in roff(7).
[[nodiscard]] std::string manual_page();

}  // namespace parsim::app
