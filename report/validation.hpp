// Errors of predictions as tables and JSON.
#pragma once

#include "report/document.hpp"
#include "validation/validation.hpp"

namespace parsim::report {

/// "sets", "rows" and "unresolved" of a validation; with `published` also counts of rows,
/// calibrations and "groups", which only published measurements have.
[[nodiscard]] std::string validation_json(const validation::Validation& validation, bool published);
/// All rows, with the likely reason of each error.
[[nodiscard]] Table table_of_rows(const std::vector<validation::ValidationRow>& rows);

/// Errors by set, then every claim of the papers.
[[nodiscard]] Document report_papers(const validation::Validation& validation);
/// Errors by set, then the ten worst rows of published measurements; JSON has all.
[[nodiscard]] Document report_published(const validation::Validation& validation);

}  // namespace parsim::report
