// What bash can know about the command line, made from the program's own tables.
#pragma once

#include <string>

namespace parsim::app {

/// Completion of verbs, options and their values, for `. <(parsim completion bash)`.
[[nodiscard]] std::string bash_completion();

}  // namespace parsim::app
