#include <fmt/format.h>

#include <algorithm>
#include <limits>

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

/// What a line of the table begins with, if one of them is marked.
constexpr std::string_view mark = "* ", no_mark = "  ";

/// A table's columns on a terminal.
struct Layout {
  std::vector<std::size_t> shown, widths;  ///< indices of columns, and the width of each
  std::size_t width = 0;
};

Layout layout_of(const Table& table, std::size_t columns) {
  std::vector<std::size_t> widths;
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    std::size_t widest = width(printable(table.columns[c].title));
    for (const std::vector<TableCell>& row : table.rows) {
      widest = std::max(widest, width(printable(row[c].text)));
    }
    widths.push_back(widest);
  }
  int dropped = std::numeric_limits<int>::max();
  while (true) {
    Layout layout{{}, {}, table.winner ? mark.size() : 0};
    int next = 0;
    for (std::size_t c = 0; c < widths.size(); ++c) {
      const int drop = table.columns[c].drop;
      if (drop >= dropped) continue;
      next = std::max(next, drop);
      layout.width += widths[c] + (layout.shown.empty() ? 0 : 2);
      layout.shown.push_back(c);
      layout.widths.push_back(widths[c]);
    }
    if (columns == 0 || layout.width <= columns || next == 0) return layout;
    dropped = next;
  }
}

void append_table(std::string& out, const Table& table, const Terminal& terminal) {
  const Layout layout = layout_of(table, terminal.columns);
  const std::string_view space = table.winner ? no_mark : "";
  if (!table.title.empty()) out += printable(table.title) + "\n";
  const auto line = [&](std::string_view begin, auto cell) {
    std::string text(begin);
    for (std::size_t i = 0; i < layout.shown.size(); ++i) {
      const std::size_t c = layout.shown[i];
      text += (i == 0 ? "" : "  ") + padded(cell(c), layout.widths[i], table.columns[c].is_number);
    }
    text.erase(text.find_last_not_of(' ') + 1);
    return text;
  };
  const auto append = [&](const std::string& text, std::string_view style) {
    out += terminal.color && !style.empty() ? fmt::format("\x1b[{}m{}\x1b[0m\n", style, text)
                                            : text + "\n";
  };
  append(line(space, [&](std::size_t c) { return printable(table.columns[c].title); }), "1");
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    for (const auto& [below, words] : table.rules) {
      if (below != r) continue;
      const std::string begin = fmt::format("{}--- {} ", space, printable(words));
      const std::size_t dashes = layout.width - std::min(layout.width, width(begin));
      append(begin + std::string(dashes, '-'), "");
    }
    const bool winner = table.winner == r;
    append(line(winner ? mark : space,
                [&](std::size_t c) { return printable(table.rows[r][c].text); }),
           winner ? "32" : "");
  }
}

/// A line of text; what does not fit goes on below, four columns further in than the line begins.
void append_line(std::string& out, const std::string& text, const Terminal& terminal) {
  std::string rest = printable(text);
  const std::size_t begin = rest.find_first_not_of(' ');
  const std::string indent((begin == std::string::npos ? 0 : begin) + 4, ' ');
  while (terminal.wraps && terminal.columns > 2 * indent.size() && width(rest) > terminal.columns) {
    // The last space before the edge, or the first one after it.
    std::size_t at = std::string::npos;
    for (std::size_t i = rest.find(' ', indent.size()); i != std::string::npos;
         i = rest.find(' ', i + 1)) {
      if (at != std::string::npos && width(std::string_view(rest).substr(0, i)) > terminal.columns)
        break;
      at = i;
    }
    if (at == std::string::npos) break;
    out += rest.substr(0, at) + "\n";
    rest = indent + rest.substr(at + 1);
  }
  out += rest + "\n";
}

}  // namespace

std::string render_table(const Document& document, const Terminal& terminal) {
  if (!document.plain.empty()) return document.plain;
  std::string out;
  for (const std::string& line : document.answer) append_line(out, line, terminal);
  if (!document.answer.empty()) out += "\n";
  for (const std::string& line : document.head) append_line(out, line, terminal);
  for (const Table& table : document.tables) {
    if (!out.empty()) out += "\n";
    append_table(out, table_for(Audience::people, table), terminal);
  }
  if (!document.notes.empty() && !out.empty()) out += "\n";
  for (const std::string& line : document.notes) append_line(out, line, terminal);
  return out;
}

}  // namespace parsim::report
