#include "report/document.hpp"

namespace parsim::report {

namespace {

/// RFC 4180: quoted if it has a comma, a quote or a line break, quotes doubled.
std::string quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"') out += '"';
    out += c;
  }
  return out + "\"";
}

}  // namespace

std::string render_csv(const Document& document, const Terminal& /*terminal*/) {
  if (document.tables.empty()) return {};
  const Table table = table_for(Audience::programs, document.tables.at(document.csv_table));
  std::string out;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    out += (c == 0 ? "" : ",") + quoted(table.columns[c].key);
  }
  out += "\n";
  for (const std::vector<TableCell>& row : table.rows) {
    for (std::size_t c = 0; c < row.size(); ++c) out += (c == 0 ? "" : ",") + quoted(row[c].raw);
    out += "\n";
  }
  return out;
}

}  // namespace parsim::report
