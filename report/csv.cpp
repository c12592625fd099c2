#include "report/csv.hpp"

#include <string_view>

#include "core/text.hpp"
#include "report/document.hpp"

namespace parsim::report {

std::string csv_cell(const std::string& text) {
  // "-" alone is no formula: the cell of what there is not.
  const bool formula = text.size() > 1 &&
                       std::string_view("=+-@\t\r").find(text[0]) != std::string_view::npos &&
                       !to_number<double>(text);
  const std::string cell = (formula ? "'" : "") + text;
  if (cell.find_first_of(",\"\r\n") == std::string::npos) return cell;
  std::string out = "\"";
  for (const char c : cell) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

std::string render_csv(const Document& document, const Terminal& /*terminal*/) {
  if (is_text_alone(document)) return document.plain;
  if (document.tables.empty()) return {};
  const Table table = table_for(Audience::programs, document.tables.at(document.csv_table));
  std::string out;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    out += (c == 0 ? "" : ",") + csv_cell(table.columns[c].key);
  }
  out += "\n";
  for (const std::vector<TableCell>& row : table.rows) {
    for (std::size_t c = 0; c < row.size(); ++c) out += (c == 0 ? "" : ",") + csv_cell(row[c].raw);
    out += "\n";
  }
  return out;
}

}  // namespace parsim::report
