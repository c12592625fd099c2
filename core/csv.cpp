#include "core/csv.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/errors.hpp"
#include "core/files.hpp"
#include "core/number_range.hpp"
#include "core/text.hpp"

namespace parsim {

namespace {

class CsvReader {
 public:
  CsvReader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  [[nodiscard]] bool more() const { return at_ < text_.size(); }
  [[nodiscard]] std::size_t line() const { return line_; }

  /// Nothing for a line that is skipped.
  std::vector<std::string> record() {
    std::vector<std::string> fields;
    if (text_[at_] == '#' || text_[at_] == '\n' || text_[at_] == '\r') {
      while (more() && text_[at_] != '\n') ++at_;
      end_of_line();
      return fields;
    }
    for (;;) {
      fields.push_back(field());
      if (more() && text_[at_] == ',') {
        ++at_;
        continue;
      }
      end_of_line();
      return fields;
    }
  }

 private:
  std::string field() {
    std::string value;
    if (!more() || text_[at_] != '"') {
      const std::size_t end = std::min(text_.find_first_of(",\r\n", at_), text_.size());
      value = text_.substr(at_, end - at_);
      at_ = end;
      return value;
    }
    const std::size_t opened = line_;
    for (++at_;; ++at_) {
      if (!more()) {
        throw InputError(fmt::format("{}:{}", file_, opened), "a quote that is never closed");
      }
      if (text_[at_] == '"') {
        ++at_;
        if (!more() || text_[at_] != '"') return value;
      }
      if (text_[at_] == '\n') ++line_;
      value += text_[at_];
    }
  }

  void end_of_line() {
    if (more() && text_[at_] == '\r') ++at_;
    if (more() && text_[at_] != '\n') {
      throw InputError(fmt::format("{}:{}", file_, line_), "text after a closed quote",
                       "accepted: a comma or the end of the line");
    }
    ++at_;
    ++line_;
  }

  std::string_view text_;
  const std::string& file_;
  std::size_t at_ = 0, line_ = 1;
};

}  // namespace

bool CsvTable::has(std::string_view column) const {
  return std::find(columns.begin(), columns.end(), column) != columns.end();
}

const std::string& CsvTable::at(const Row& row, std::string_view column) const {
  static const std::string nothing;
  const auto found = std::find(columns.begin(), columns.end(), column);
  return found == columns.end() ? nothing
                                : row.fields[static_cast<std::size_t>(found - columns.begin())];
}

double CsvTable::number(const Row& row, std::string_view column) const {
  const std::string& text = at(row, column);
  const auto value = to_number<double>(text);
  const double size = value ? std::abs(*value) : 0;
  if (value && (size == 0 || std::isnan(size) || (size >= least_number && size <= most_number)))
    return *value;
  throw InputError(
      fmt::format("{}:{}:{}", file, row.line, column), fmt::format("'{}'", text),
      value ? fmt::format("accepted: 0, or a number of {} to {}", least_number, most_number)
            : "accepted: a number");
}

CsvTable read_csv(std::string_view text, const std::string& file) {
  CsvTable table;
  table.file = file;
  CsvReader reader(without_byte_order_mark(text), file);
  while (reader.more()) {
    const std::size_t line = reader.line();
    std::vector<std::string> fields = reader.record();
    if (fields.empty()) continue;
    if (table.columns.empty()) {
      table.columns = std::move(fields);
      for (auto column = table.columns.begin(); column != table.columns.end(); ++column) {
        if (std::find(table.columns.begin(), column, *column) != column) {
          throw InputError(fmt::format("{}:{}", file, line),
                           fmt::format("two columns named '{}'", *column));
        }
      }
      continue;
    }
    if (fields.size() != table.columns.size()) {
      throw InputError(fmt::format("{}:{}", file, line), fmt::format("{} fields", fields.size()),
                       fmt::format("accepted: {}, as in the head line", table.columns.size()));
    }
    table.rows.push_back({line, std::move(fields)});
  }
  if (table.columns.empty()) {
    throw InputError(file, "an empty table", "accepted: a head line with names, then rows");
  }
  return table;
}

}  // namespace parsim
