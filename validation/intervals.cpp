#include "validation/intervals.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "experiment/step_interval.hpp"
#include "validation/published_machines.hpp"

namespace parsim::validation {

namespace {

const experiment::Spreads& spreads_for(const ValidationRow& row) {
  return experiment::spreads(row.calibrated, system_of(row.claim));
}

bool is_time(const ValidationRow& row) {
  return row.claim.unit == "ms" || row.claim.unit == "us" || row.claim.unit == "s";
}

/// Of logarithms.
double score_of(double low, double high, double error) {
  constexpr double outside = 2 / 0.1;
  return high - low + outside * std::max({0.0, low - error, error - high});
}

IntervalScores scores_of(const std::string& name, const std::vector<const ValidationRow*>& rows) {
  IntervalScores scores{name, rows.size()};
  std::vector<double> half_widths;
  for (const ValidationRow* row : rows) {
    const experiment::Spreads& spreads = spreads_for(*row);
    const auto [low, high] = experiment::step_interval(*row->parts, spreads);
    const double error = log_error(*row);
    scores.coverage += error >= std::log(low) && error <= std::log(high) ? 1 : 0;
    half_widths.push_back((high - low) / 2);
    scores.score += score_of(std::log(low), std::log(high), error);
    scores.constant_score += score_of(-spreads.constant, spreads.constant, error);
  }
  const auto count = static_cast<double>(rows.size());
  scores.coverage /= count;
  scores.score /= count;
  scores.constant_score /= count;
  scores.median_half_width = median(half_widths);
  return scores;
}

}  // namespace

double log_error(const ValidationRow& row) {
  const double ratio = std::log(row.claim.expected / row.predicted);
  return is_time(row) ? ratio : -ratio;
}

std::optional<std::pair<double, double>> interval_of(const ValidationRow& row) {
  if (!row.parts) return std::nullopt;
  const auto [low, high] = experiment::step_interval(*row.parts, spreads_for(row));
  if (is_time(row)) return std::pair(row.predicted * low, row.predicted * high);
  return std::pair(row.predicted / high, row.predicted / low);
}

std::vector<IntervalScores> interval_scores(const std::vector<ValidationRow>& rows) {
  std::vector<std::pair<std::string, std::vector<const ValidationRow*>>> sets;
  std::vector<const ValidationRow*> all;
  for (const ValidationRow& row : rows) {
    if (!row.parts) continue;
    auto set = std::find_if(sets.begin(), sets.end(),
                            [&](const auto& entry) { return entry.first == row.claim.set; });
    if (set == sets.end()) set = sets.insert(set, {row.claim.set, {}});
    set->second.push_back(&row);
    all.push_back(&row);
  }
  if (sets.size() > 1) sets.emplace_back("all", std::move(all));
  std::vector<IntervalScores> scores;
  for (const auto& [name, of_set] : sets) scores.push_back(scores_of(name, of_set));
  return scores;
}

}  // namespace parsim::validation
