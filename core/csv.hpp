// Comma-separated tables with a head line, as in RFC 4180: fields may be quoted, quotes are
// doubled.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace parsim {

struct CsvTable {
  std::vector<std::string> columns;
  struct Row {
    std::size_t line = 0;  ///< of the text, from 1
    std::vector<std::string> fields;
  };
  std::vector<Row> rows;
  std::string file;  ///< in messages

  [[nodiscard]] bool has(std::string_view column) const;
  /// A field, or "" if there is no such column.
  [[nodiscard]] const std::string& at(const Row& row, std::string_view column) const;
  /// A field as a number. Throws InputError with file:line:column if it is none.
  [[nodiscard]] double number(const Row& row, std::string_view column) const;
};

/// Reads a table. Lines that are empty or begin with '#' outside quotes are skipped. Throws
/// InputError with file:line for a row with more or fewer fields than the head line, an open quote,
/// a column named twice, or a text without head line.
[[nodiscard]] CsvTable read_csv(std::string_view text, const std::string& file);

}  // namespace parsim
