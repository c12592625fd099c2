// Errors of predictions as tables and JSON.
#pragma once

#include <string>
#include <vector>

#include "core/profile.hpp"
#include "report/document.hpp"
#include "report/result_text.hpp"
#include "validation/validation.hpp"

namespace parsim::report {

/// Times of operations of one class in a step, added up over all devices.
struct ClassRow {
  std::string set{}, name{}, cost_class{};  ///< network and strategy, class of operations
  Seconds predicted{}, measured{};
};

/// Predictions for this machine and what it took.
struct MeasuredValidation {
  struct Step {
    Spread step{};
    Seconds with_events{};  ///< median with an event around every operation
  };
  validation::Validation validation{};
  std::vector<Step> steps{};  ///< of each of its rows
  std::vector<ClassRow> classes{};
  Machine machine{};
  std::string refusal{};  ///< why nothing was measured, or ""
};

/// The results of `validate --papers`, `--published` and `--hw`.
[[nodiscard]] std::string papers_json(const validation::Validation& validation,
                                      const InputsText& inputs);
[[nodiscard]] std::string published_json(const validation::Validation& validation,
                                         const std::vector<std::string>& notes,
                                         const InputsText& inputs);
[[nodiscard]] std::string measured_json(const MeasuredValidation& measured,
                                        const InputsText& inputs);
/// JSON Schema of the three.
[[nodiscard]] std::string validation_schema();

/// All rows, with the likely or possible reason of each error.
///
/// compared   what the predictions are compared with: "measured", or "published" of papers' claims
[[nodiscard]] Table table_of_rows(const std::vector<validation::ValidationRow>& rows,
                                  const std::string& compared);

/// Errors by set, then every claim of the papers.
[[nodiscard]] Document report_papers(const validation::Validation& validation,
                                     const InputsText& inputs);
/// Errors by set, then the ten worst rows of published measurements; JSON has all.
///
/// notes   on the files that the rows are from
[[nodiscard]] Document report_published(const validation::Validation& validation,
                                        const std::vector<std::string>& notes,
                                        const InputsText& inputs);

}  // namespace parsim::report
