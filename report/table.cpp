#include <fmt/format.h>

#include <algorithm>

#include "report/document.hpp"

namespace parsim::report {

namespace {

/// Characters on the terminal: UTF-8 continuation bytes have no width.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
  }));
}

std::string padded(std::string_view text, std::size_t to, bool right) {
  const std::string space(to > width(text) ? to - width(text) : 0, ' ');
  return right ? space + std::string(text) : std::string(text) + space;
}

void append_line(std::string& out, std::string line) {
  line.erase(line.find_last_not_of(' ') + 1);
  out += line + "\n";
}

void append_table(std::string& out, const Table& table, bool color) {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    std::size_t widest = width(table.columns[c].title);
    for (const std::vector<TableCell>& row : table.rows) {
      widest = std::max(widest, width(printable(row[c].text)));
    }
    widths.push_back(widest);
  }
  if (!table.title.empty()) out += printable(table.title) + "\n";
  std::string header;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    header += (c == 0 ? "" : "  ") +
              padded(table.columns[c].title, widths[c], table.columns[c].is_number);
  }
  header.erase(header.find_last_not_of(' ') + 1);
  out += color ? fmt::format("\x1b[1m{}\x1b[0m\n", header) : header + "\n";
  for (const std::vector<TableCell>& row : table.rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      line += (c == 0 ? "" : "  ") +
              padded(printable(row[c].text), widths[c], table.columns[c].is_number);
    }
    append_line(out, line);
  }
}

}  // namespace

std::string render_table(const Document& document, bool color) {
  if (!document.plain.empty()) return document.plain;
  std::string out;
  for (const std::string& line : document.head) out += printable(line) + "\n";
  for (const Table& table : document.tables) {
    if (!out.empty()) out += "\n";
    append_table(out, table_for(Audience::people, table), color);
  }
  if (!document.notes.empty() && !out.empty()) out += "\n";
  for (const std::string& line : document.notes) out += printable(line) + "\n";
  return out;
}

}  // namespace parsim::report
