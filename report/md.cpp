#include "report/document.hpp"

namespace parsim::report {

namespace {

/// What Markdown or HTML would take for markup is escaped: names come from files.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '|' || c == '\\' || c == '<' || c == '`' || c == '*' || c == '_' || c == '[') {
      out += '\\';
    }
    out += c;
  }
  return out;
}

void append_table(std::string& out, const Table& table) {
  if (!table.title.empty()) out += escaped(table.title) + "\n\n";
  std::string header = "|";
  std::string rule = "|";
  for (const Column& column : table.columns) {
    header += " " + escaped(column.title) + " |";
    rule += column.is_number ? " ---: |" : " --- |";
  }
  out += header + "\n" + rule + "\n";
  for (const std::vector<TableCell>& row : table.rows) {
    out += "|";
    for (const TableCell& cell : row) out += " " + escaped(cell.text) + " |";
    out += "\n";
  }
}

}  // namespace

std::string render_md(const Document& document, const Terminal& /*terminal*/) {
  if (is_text_alone(document)) return document.plain;
  std::string out;
  // Without their indentation, which would make them code.
  for (const std::string& line : document.answer) {
    out += escaped(line.substr(std::min(line.size(), line.find_first_not_of(' ')))) + "\n\n";
  }
  for (const std::string& line : document.head) out += escaped(line) + "\n\n";
  for (const Table& table : document.tables) {
    append_table(out, table_for_page(table));
    out += "\n";
  }
  for (const std::string& line : document.notes) out += "- " + escaped(line) + "\n";
  return out;
}

}  // namespace parsim::report
