#include "report/sweep_filter.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/errors.hpp"
#include "core/text.hpp"
#include "core/units.hpp"
#include "experiment/options.hpp"

namespace parsim::report {

namespace {

constexpr std::string_view accepted_conditions =
    "accepted: COLUMN <= NUMBER, with <, <=, =, >= or >, or COLUMN = TEXT";

std::string_view without_blanks(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t");
  if (first == text.npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") + 1 - first);
}

std::optional<double> number_in(const SweepCell& cell) {
  using Kind = SweepCell::Kind;
  if (cell.kind != Kind::integer && cell.kind != Kind::real) return std::nullopt;
  return to_number<double>(cell.text);
}

/// The number in the column's unit; nothing for a text that is none.
std::optional<double> limit_of(const std::string& text, std::string_view column,
                               const std::string& where) {
  if (const auto number = to_number<double>(text)) {
    return std::isnan(*number) ? std::nullopt : number;
  }
  if (text.empty() || std::string_view("+-.0123456789").find(text.front()) == std::string::npos) {
    return std::nullopt;
  }
  if (column.ends_with("_s") && !column.ends_with("_per_s")) {
    return parse_seconds(text, where).count();
  }
  if (column.ends_with("_bytes") || column.starts_with("bytes_")) {
    return static_cast<double>(parse_bytes(text, where).value);
  }
  if (!text.ends_with('%')) return std::nullopt;
  const auto percent =
      to_number<double>(without_blanks(std::string_view(text).substr(0, text.size() - 1)));
  return percent ? std::optional(*percent / 100) : std::nullopt;
}

}  // namespace

std::size_t column_index(const SweepRows& rows, const std::string& name, std::string_view flag) {
  const std::vector<std::string>& columns = rows.columns();
  auto found = std::find(columns.begin(), columns.end(), name);
  if (found == columns.end()) found = std::find(columns.begin(), columns.end(), "input_" + name);
  if (found == columns.end()) experiment::refuse_word(name, flag, columns);
  return static_cast<std::size_t>(found - columns.begin());
}

std::optional<double> Criterion::cost(const SweepRow& row) const {
  const auto value = to_number<double>(row[column].text);
  if (!value || std::isnan(*value)) return std::nullopt;
  return highest ? -*value : *value;
}

Criterion criterion(const SweepRows& rows, const std::string& name, std::string_view flag) {
  return {column_index(rows, name, flag), name == "throughput_samples_per_s" ||
                                              name == "probability_fastest" || name == "mfu" ||
                                              name == "hfu"};
}

RowCondition::RowCondition(std::string text, const SweepRows& rows)
    : text_(std::move(text)), where_(fmt::format("--where '{}'", text_)) {
  const std::size_t at = text_.find_first_of("<>=");
  if (at == std::string::npos) {
    throw InputError(where_, "no operator", std::string(accepted_conditions));
  }
  const bool two = at + 1 < text_.size() && text_[at + 1] == '=';
  const std::string_view all = text_, sign = all.substr(at, two ? 2 : 1);
  name_ = without_blanks(all.substr(0, at));
  value_ = without_blanks(all.substr(at + sign.size()));
  operator_ = sign == "<"    ? Operator::less
              : sign == "<=" ? Operator::at_most
              : sign == ">=" ? Operator::at_least
              : sign == ">"  ? Operator::more
                             : Operator::equal;
  if (sign == "==" || value_.empty() || value_.find_first_of("<>=") == 0) {
    throw InputError(where_, value_.empty() ? "no value" : fmt::format("'{}'", sign),
                     std::string(accepted_conditions));
  }
  column_ = column_index(rows, name_, where_);
  number_ = limit_of(value_, rows.columns()[column_], where_);
  if (number_ || operator_ == Operator::equal) return;
  throw InputError(where_, fmt::format("'{}' is no number", value_),
                   fmt::format("accepted after {}: a number", sign));
}

bool RowCondition::holds(const SweepRow& row) const {
  const SweepCell& cell = row[column_];
  const std::optional<double> here = number_in(cell);
  if (!here || !number_) {
    return operator_ == Operator::equal && cell.kind != SweepCell::Kind::none &&
           cell.text == value_;
  }
  switch (operator_) {
    case Operator::less:
      return *here < *number_;
    case Operator::at_most:
      return *here <= *number_;
    case Operator::equal:
      return *here == *number_;
    case Operator::at_least:
      return *here >= *number_;
    case Operator::more:
      return *here > *number_;
  }
  return false;
}

void RowCondition::see(const SweepRow& row) {
  using Kind = SweepCell::Kind;
  const SweepCell& cell = row[column_];
  if (cell.kind == Kind::text || cell.kind == Kind::boolean) {
    if (example_.empty()) example_ = cell.text;
  } else if (cell.kind != Kind::none) {
    numbers_ = true;
  }
}

void RowCondition::check() const {
  if (operator_ != Operator::equal && !numbers_ && !example_.empty()) {
    throw InputError(where_, fmt::format("'{}' has no numbers, but texts", name_),
                     fmt::format("accepted: = and a text, as in '{} = {}'", name_, example_));
  }
  if (!number_ && numbers_ && example_.empty()) {
    throw InputError(where_, fmt::format("'{}' is no number, as '{}' has", value_, name_),
                     "accepted: a number");
  }
}

}  // namespace parsim::report
