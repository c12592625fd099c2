#include "report/page/html.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/text.hpp"

namespace parsim::report {

namespace {

/// At most `longest` bytes, cut between characters.
std::string cut_to(std::string_view text, std::size_t longest) {
  if (text.size() <= longest) return std::string(text);
  std::size_t end = longest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return std::string(text.substr(0, end)) + "…";
}

/// The number that a cell begins with, of "22 %" or "103-275", for sorting; all of it if it is one.
std::string_view sort_value(std::string_view raw) {
  if (to_number<double>(raw)) return raw;
  const std::size_t begin = std::min(raw.find_first_of("0123456789"), raw.size());
  const std::size_t end = raw.find_first_not_of("0123456789.", begin);
  return raw.substr(begin, end - begin);
}

}  // namespace

std::string unbroken(std::string_view text) {
  constexpr std::string_view units[] = {"%",   "s",   "ms",  "us",   "ns",   "B",    "KiB", "MiB",
                                        "GiB", "TiB", "B/s", "kB/s", "MB/s", "GB/s", "TB/s"};
  constexpr std::string_view ends = " ,.;:)";
  constexpr std::string_view no_break_space = "\u00a0";
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const std::size_t end = std::min(text.find_first_of(ends, i + 1), text.size());
    const bool joins = text[i] == ' ' && i > 0 && text[i - 1] >= '0' && text[i - 1] <= '9' &&
                       std::find(std::begin(units), std::end(units),
                                 text.substr(i + 1, end - i - 1)) != std::end(units);
    out += joins ? no_break_space : text.substr(i, 1);
  }
  return out;
}

std::string html(std::string_view text, std::size_t longest) {
  return xml_escaped(printable(cut_to(text, longest)));
}

std::string html_lines(std::string_view text) {
  std::string out;
  for (const std::string& line : split_at(text, '\n')) {
    if (!out.empty()) out += '\n';
    for (std::string rest = html(line); !rest.empty();) {
      const std::size_t quote = rest.find("&quot;");
      out += rest.substr(0, quote);
      if (quote == std::string::npos) break;
      out += '"';
      rest.erase(0, quote + 6);
    }
  }
  return out;
}

std::string html_name(std::string_view name) {
  constexpr std::size_t longest = 40;
  return html(name, longest);
}

std::string json_for_script(std::string_view json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json) {
    if (c == '<') {
      out += "\\u003c";
    } else {
      out += c;
    }
  }
  return out;
}

std::string coordinate(double value) { return fmt::format("{}", std::round(value * 10) / 10); }

std::string width_percent(double share) { return coordinate(100 * share) + "%"; }

std::string html_table(const Table& all, bool cards) {
  const Table table = table_for_page(all);
  std::string out =
      fmt::format("<div class=scroll><table class=\"sortable{}\">", cards ? " cards" : "");
  if (!table.title.empty()) out += fmt::format("<caption>{}</caption>", html(table.title));
  out += "<thead><tr>";
  for (const Column& column : table.columns) {
    out += fmt::format("<th{}>{}", column.is_number ? " class=n" : "", html(column.title));
  }
  out += "<tbody>";
  const std::size_t fit = table.rules.empty() ? table.rows.size() : table.rules.front().first;
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    out += table.winner == r ? "<tr class=best>" : r >= fit ? "<tr class=over>" : "<tr>";
    for (std::size_t c = 0; c < table.columns.size(); ++c) {
      const TableCell& cell = table.rows[r][c];
      const std::string title =
          cards && c > 0 ? fmt::format(" data-t=\"{}\"", html(table.columns[c].title)) : "";
      if (table.columns[c].is_number) {
        out += fmt::format("<td data-v=\"{}\"{}>{}", html(sort_value(cell.raw)), title,
                           html(cell.text));
      } else {
        out += fmt::format("<td{}>{}", title, html(unbroken(cell.text)));
      }
    }
    out += "\n";
  }
  return out + "</table></div>\n";
}

}  // namespace parsim::report
