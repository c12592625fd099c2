// What the page of a sweep is drawn from: every row with its place on the axes and its values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "report/sweep_axes.hpp"
#include "report/sweep_filter.hpp"
#include "report/sweep_rows.hpp"

namespace parsim::report {

/// What keeps a row from being the best, if anything does.
enum class RowState : std::uint8_t { good, unmet, lacks_value, unfit, failed };

struct SummaryRow {
  std::size_t point = 0, place = 0;  ///< among the rows of its point
  RowState state = RowState::good;
  std::uint32_t strategy = 0;  ///< index in SweepSummary::strategies; of a failed one no index
  std::vector<double> costs;   ///< by column of SweepSummary::columns; lower is better, NaN: none
};

/// A number of every row.
struct SummaryColumn {
  Criterion criterion;
  std::string name;

  /// "step time".
  [[nodiscard]] std::string title() const;
  /// SI unit, "" for a bare number.
  [[nodiscard]] std::string unit() const;
  /// "5.46 s": of a value as in the table, or of a cost.
  [[nodiscard]] std::string text(double value) const;
  [[nodiscard]] double value_of(double cost) const { return criterion.highest ? -cost : cost; }
};

struct SweepSummary {
  std::vector<SweepAxis> axes;  ///< the strategy last, if a point has rows of several
  bool strategy_axis = false;
  std::vector<std::string> strategies;
  std::vector<SummaryColumn> columns;                      ///< the first ranks
  std::vector<SummaryRow> rows;                            ///< in the order of the points
  std::optional<std::size_t> best;                         ///< index of a row
  std::map<std::string, std::vector<std::size_t>> failed;  ///< points by sentence
  std::size_t unfit = 0, unmet = 0, lacking = 0;
  std::vector<SweepInput> constant;  ///< inputs that all points have

  /// The index of a row's value of an axis; nothing where a failed point stands for all.
  [[nodiscard]] std::optional<std::uint32_t> at(const SummaryRow& row, std::size_t axis) const;
  /// "gpu h100-sxm5, n 4, strategy fsdp".
  [[nodiscard]] std::string words_of(const SummaryRow& row) const;
  /// Good rows, the best first; ties in the order of the points.
  [[nodiscard]] std::vector<std::size_t> ranked() const;
  /// Good rows that no other beats in both columns, by the first; of equal ones the first.
  [[nodiscard]] std::vector<std::size_t> front(std::size_t a, std::size_t b) const;
};

/// by      column that ranks
/// more    further columns wanted, if the results have them
/// where   conditions that good rows meet
[[nodiscard]] SweepSummary summary_of(SweepRows& rows, const std::string& by,
                                      const std::vector<std::string>& more,
                                      const std::vector<RowCondition>& where);

}  // namespace parsim::report
