// A report before it is rendered: lines and tables with every number twice, for people and for
// programs. The formats of `--format` are a table of functions.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text.hpp"

namespace parsim::report {

/// One entry of a table: rounded for people, exact in SI base units for programs.
struct TableCell {
  std::string text;
  std::string raw;

  static TableCell word(const std::string& text) { return {text, text}; }
};

/// Some columns are for people, others hold the same for programs.
enum class Audience : std::uint8_t { everyone, people, programs };

struct Column {
  std::string title;  ///< for people, with the unit: "step [ms]"
  std::string key;    ///< for programs, as in JSON: "step_time_s"
  bool is_number = true;
  Audience audience = Audience::everyone;
  /// Where a terminal is too narrow for all columns, those with the largest numbers go first; 0:
  /// stays. Pages and papers have none from `detail` on.
  int drop = 0;
  static constexpr int detail = 4;
};

struct Table {
  std::string title;  ///< "" for none
  std::vector<Column> columns;
  std::vector<std::vector<TableCell>> rows;
  std::optional<std::size_t> winner{};  ///< a row that is marked
  /// Rows that stand below a line with these words.
  std::vector<std::pair<std::size_t, std::string>> rules{};
};

struct Document {
  std::vector<std::string> answer;    ///< what was asked for, before everything else
  std::vector<std::string> head;      ///< lines above the tables
  std::vector<Table> tables;          ///< the first is the result, the others are details
  std::vector<std::string> notes;     ///< lines below
  std::vector<std::string> warnings;  ///< for standard error; also in the JSON
  std::string json;                   ///< the whole result for programs
  std::size_t csv_table = 0;          ///< the table that CSV holds
  std::string drawing;                ///< text of a file for another program (dot, simgrid), or ""
  std::string plain;                  ///< if not empty, replaces tables and notes for people
};

/// A text without tables, such as a schema: the same in every format but JSON.
[[nodiscard]] bool is_text_alone(const Document& document);
/// The columns of the table that are for `reader`.
[[nodiscard]] Table table_for(Audience reader, const Table& table);
/// Those for people that pages and papers show.
[[nodiscard]] Table table_for_page(const Table& table);

/// What text is written for.
struct Terminal {
  bool color = false;
  std::size_t columns = 80;  ///< 0: as many as it takes
  bool wraps = false;        ///< lines of text, at spaces; tables lose columns instead
};

struct Format {
  std::string_view name, summary;
  std::string (*render)(const Document& document, const Terminal& terminal);
  bool is_drawing = false;  ///< only 'show' has it
};
[[nodiscard]] std::span<const Format> formats();

[[nodiscard]] std::string render_table(const Document& document, const Terminal& terminal = {});
[[nodiscard]] std::string render_json(const Document& document, const Terminal& terminal = {});
/// One table only, keys as header, raw numbers; RFC 4180 quoting.
[[nodiscard]] std::string render_csv(const Document& document, const Terminal& terminal = {});
[[nodiscard]] std::string render_md(const Document& document, const Terminal& terminal = {});
[[nodiscard]] std::string render_drawing(const Document& document, const Terminal& terminal = {});

/// The text with every control character as '?': names come from files, and a terminal would
/// execute escape sequences.
[[nodiscard]] std::string printable(std::string_view text);

/// Appends a column; one cell per row, and the first column creates the rows.
void add_column(Table& table, Column column, std::vector<TableCell> cells);
/// Numbers of a column, one per row; NaN becomes "-" and an empty raw text.
struct Numbers {
  std::string title, key;
  std::vector<double> values;
  Audience audience = Audience::everyone;
};
/// Appends columns of numbers, all with the unit prefix of the largest: "step [ms]". Columns
/// that are compared with each other go into one call.
///
/// unit      SI unit of the numbers: "s", "B", …; "" for bare numbers
/// typical   the number whose prefix all take instead of the largest's, and as many decimals as
/// give
///           it three digits; NaN for none
void add_numbers(Table& table, const std::string& unit, const std::vector<Numbers>& columns,
                 double typical = std::numeric_limits<double>::quiet_NaN());
/// The prefix of a unit, and what it stands for: {1e-3, "m"}.
struct Scale {
  double factor = 1.0;
  std::string_view prefix;
};
/// For numbers of which this is a typical one. Times and rates are decimal, memory is binary, as
/// everywhere in this program.
[[nodiscard]] Scale scale_for(double typical, std::string_view unit);
/// Appends a column of text.
void add_words(Table& table, const std::string& title, const std::string& key,
               const std::vector<std::string>& words, Audience audience = Audience::everyone);
/// The shortest decimal text that reads back as the same number.
[[nodiscard]] std::string exact(double value);

}  // namespace parsim::report
