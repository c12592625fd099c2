// How well the intervals of predictions hold on published rows.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "validation/validation.hpp"

namespace parsim::validation {

/// ln(measured time / predicted time), of times and rates.
[[nodiscard]] double log_error(const ValidationRow& row);

/// Where the measurement is expected in 90 % of cases, in the unit of the row: its own system
/// (machine, card and framework) is left out of the fit of the spreads. Nothing for rows without
/// parts.
[[nodiscard]] std::optional<std::pair<double, double>> interval_of(const ValidationRow& row);

/// How intervals did on rows.
struct IntervalScores {
  std::string set;
  std::size_t rows = 0;
  double coverage = 0;           ///< part of the measurements that lie inside
  double median_half_width = 0;  ///< of high - low over twice the prediction
  /// Mean interval score of logarithms: width + 20 · distance of what lies outside (Gneiting and
  /// Raftery 2007, equation 43); less is better.
  double score = 0;
  /// The same of the best interval of one width for all rows, with the system left out, too.
  double constant_score = 0;
};
/// By set, in order of the first row; of several sets also "all".
[[nodiscard]] std::vector<IntervalScores> interval_scores(const std::vector<ValidationRow>& rows);

}  // namespace parsim::validation
