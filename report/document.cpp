#include "report/document.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/errors.hpp"

namespace parsim::report {

namespace {

constexpr Format format_table[] = {
    {"table", "aligned text", render_table},
    {"json", "all data, in SI base units", render_json},
    {"csv", "the main table, in SI base units", render_csv},
    {"md", "the tables in Markdown", render_md},
    {"dot", "a graph for Graphviz", render_drawing, true},
    {"simgrid", "a platform file for SimGrid", render_drawing, true},
};

}  // namespace

bool is_text_alone(const Document& document) {
  return !document.plain.empty() &&
         std::all_of(document.tables.begin(), document.tables.end(),
                     [](const Table& table) { return table.columns.empty(); });
}

Scale scale_for(double largest, std::string_view unit) {
  static constexpr Scale times[] = {{1.0, ""}, {1e-3, "m"}, {1e-6, "u"}, {1e-9, "n"}};
  static constexpr Scale decimal[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}, {1.0, ""}};
  static constexpr Scale binary[] = {
      {0x1p40, "Ti"}, {0x1p30, "Gi"}, {0x1p20, "Mi"}, {0x1p10, "Ki"}, {1.0, ""}};
  std::span<const Scale> known = decimal;
  if (unit == "s") known = times;
  if (unit == "B") known = binary;
  if (unit.empty() || unit == "%") return {};
  for (const Scale& scale : known) {
    if (largest >= scale.factor) return scale;
  }
  return largest > 0 ? known.back() : Scale{};
}

namespace {

/// With as many decimals as give `typical` three digits.
std::string aligned(double value, double typical) {
  if (std::isnan(value)) return "-";
  int decimals = 0;
  for (double limit = 99.95; typical < limit && decimals < 6; limit /= 10) ++decimals;
  std::string text = fmt::format("{:.{}f}", value, decimals);
  if (text.front() == '-' && text.find_first_not_of("-0.") == std::string::npos) text.erase(0, 1);
  return text;
}

}  // namespace

std::span<const Format> formats() { return format_table; }

std::string render_json(const Document& document, const Terminal& /*terminal*/) {
  return document.json + "\n";
}

std::string render_drawing(const Document& document, const Terminal& /*terminal*/) {
  ensure(!document.drawing.empty(), "a document in a drawing format has a drawing");
  return document.drawing;
}

std::string printable(std::string_view text) {
  std::string clean(text);
  for (std::size_t i = 0; i < clean.size(); ++i) {
    const auto byte = static_cast<unsigned char>(clean[i]);
    const auto after = static_cast<unsigned char>(i + 1 < clean.size() ? clean[i + 1] : 0);
    // U+0080 to U+009F are control characters, too: C2 80 to C2 9F in UTF-8.
    const bool c1 = byte == 0xC2 && after >= 0x80 && after <= 0x9F;
    if (c1) clean[i + 1] = '?';
    if (c1 || byte < 0x20 || byte == 0x7F) clean[i] = '?';
  }
  return clean;
}

std::string exact(double value) { return std::isnan(value) ? "" : fmt::format("{}", value); }

namespace {

Table selected(const Table& table, auto wanted) {
  Table seen;
  seen.title = table.title;
  seen.winner = table.winner;
  seen.rules = table.rules;
  seen.rows.resize(table.rows.size());
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    if (!wanted(table.columns[c])) continue;
    seen.columns.push_back(table.columns[c]);
    for (std::size_t r = 0; r < table.rows.size(); ++r) {
      seen.rows[r].push_back(table.rows[r][c]);
    }
  }
  return seen;
}

bool is_for(Audience reader, const Column& column) {
  return column.audience == Audience::everyone || column.audience == reader;
}

}  // namespace

Table table_for(Audience reader, const Table& table) {
  return selected(table, [&](const Column& column) { return is_for(reader, column); });
}

Table table_for_page(const Table& table) {
  return selected(table, [](const Column& column) {
    return is_for(Audience::people, column) && column.drop < Column::detail;
  });
}

void add_column(Table& table, Column column, std::vector<TableCell> cells) {
  if (table.columns.empty()) table.rows.resize(cells.size());
  ensure(cells.size() == table.rows.size(), "every column of a table has all rows");
  table.columns.push_back(std::move(column));
  for (std::size_t i = 0; i < cells.size(); ++i) table.rows[i].push_back(std::move(cells[i]));
}

void add_numbers(Table& table, const std::string& unit, const std::vector<Numbers>& columns,
                 double typical) {
  double largest = 0.0;
  for (const Numbers& column : columns) {
    for (const double value : column.values) {
      if (!std::isnan(value)) largest = std::max(largest, value);
    }
  }
  const Scale scale = scale_for(std::isnan(typical) ? largest : typical, unit);
  for (const Numbers& column : columns) {
    std::vector<TableCell> cells;
    for (const double value : column.values) {
      const double scaled = value / scale.factor;
      cells.push_back(
          {std::isnan(typical) ? three_digits(scaled) : aligned(scaled, typical / scale.factor),
           exact(value)});
    }
    const std::string title =
        unit.empty() ? column.title : fmt::format("{} [{}{}]", column.title, scale.prefix, unit);
    add_column(table, {title, column.key, true, column.audience}, std::move(cells));
  }
}

void add_words(Table& table, const std::string& title, const std::string& key,
               const std::vector<std::string>& words, Audience audience) {
  std::vector<TableCell> cells;
  for (const std::string& word : words) cells.push_back(TableCell::word(word));
  add_column(table, {title, key, false, audience}, std::move(cells));
}

}  // namespace parsim::report
