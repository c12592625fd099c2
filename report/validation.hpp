// Errors of predictions as tables and JSON.
#pragma once

#include "report/document.hpp"
#include "validation/validation.hpp"

namespace parsim::report {

/// Errors by set, then every claim of the papers.
[[nodiscard]] Document report_papers(const validation::Validation& validation);
/// Errors by set, then the ten worst rows of published measurements; JSON has all.
[[nodiscard]] Document report_published(const validation::Validation& validation);

}  // namespace parsim::report
