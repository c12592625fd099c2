// Conditions on the rows of a sweep's results, --where, and what ranks them: --by and --pareto.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/sweep_rows.hpp"

namespace parsim::report {

/// The index of a column. That of an input is found by the sweep's name, too: "batch" is
/// "input_batch" unless the results have a "batch". Throws InputError with the known ones.
[[nodiscard]] std::size_t column_index(const SweepRows& rows, const std::string& name,
                                       std::string_view flag);

/// A column whose lowest value, or highest, is the best.
struct Criterion {
  std::size_t column = 0;
  bool highest = false;

  /// Lower is better; nothing if the cell is no number.
  [[nodiscard]] std::optional<double> cost(const SweepRow& row) const;
};
/// Throws InputError for an unknown column.
[[nodiscard]] Criterion criterion(const SweepRows& rows, const std::string& name,
                                  std::string_view flag);

/// "step_time_s <= 10". A cell without a value meets no condition.
class RowCondition {
 public:
  /// Throws InputError for a text without an operator, an unknown column, and a value that is no
  /// number where one is needed. Times and bytes may have their unit ("10 s", "80GiB"), others "%".
  RowCondition(std::string text, const SweepRows& rows);

  [[nodiscard]] const std::string& text() const { return text_; }
  [[nodiscard]] std::size_t column() const { return column_; }
  [[nodiscard]] bool holds(const SweepRow& row) const;

  /// Notes which kind of values the column has.
  void see(const SweepRow& row);
  /// Throws InputError if all rows seen have numbers and the value is none, or the reverse.
  void check() const;

 private:
  enum class Operator : std::uint8_t { less, at_most, equal, at_least, more };

  std::string text_, where_, name_, value_;
  Operator operator_ = Operator::equal;
  std::size_t column_ = 0;
  std::optional<double> number_;
  std::string example_;  ///< another value of the column, a text
  bool numbers_ = false;
};

}  // namespace parsim::report
