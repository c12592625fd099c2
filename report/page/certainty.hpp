// How surely the first plan of a comparison is the fastest, in words.
#pragma once

#include <string>
#include <vector>

#include "report/page/page.hpp"

namespace parsim::report {

/// The plans that fit, each once, the best first.
[[nodiscard]] std::vector<const experiment::RunResult*> fitting(const Page& page);

/// How likely the best plan is the fastest. Pipelines with its stages are one answer, and what
/// differs between them is another. `plans` as from fitting(); "" if there is only one.
[[nodiscard]] std::string who_is_fastest(const std::vector<const experiment::RunResult*>& plans);

}  // namespace parsim::report
