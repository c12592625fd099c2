#include <algorithm>
#include <iterator>

#include "report/runs.hpp"

namespace parsim::report {

namespace {

/// Text that LaTeX prints as it is, but '?' for every character beyond ASCII: which of them compile
/// depends on engine and packages. The quote is not printed by itself: babel gives it a meaning.
std::string latex_text(std::string_view text) {
  constexpr std::string_view special = "\\~^<>|\"#$%&_{}", ligatures = "-`',!?";
  constexpr std::string_view instead[] = {
      "textbackslash{}", "textasciitilde{}", "textasciicircum{}", "textless{}",
      "textgreater{}",   "textbar{}",        "char34{}"};
  std::string out;
  char last = '\n';
  for (char c : printable(text)) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte & 0xC0U) == 0x80U) continue;  // the inside of a character
    if (byte >= 0x80U) c = '?';
    // Any and one of the first four may become one character; '\\' would take '[' and '*'.
    const bool joins = ligatures.find(last) < ligatures.size() && ligatures.find(c) < 4;
    if (joins || (last == '\n' && (c == '[' || c == '*'))) out += "{}";
    const std::size_t at = special.find(c);
    if (at < special.size() || (c == ' ' && last == '.')) out += '\\';  // "comm. time" goes on
    out += at < std::size(instead) ? instead[at] : std::string_view(&c, 1);
    last = c;
  }
  return out;
}

}  // namespace

std::string latex_table(const Document& document,
                        const std::vector<experiment::RunResult>& results) {
  const Table table = table_for_page(document.tables.at(0));
  std::string caption = latex_text(document.head.at(0)) + ". All numbers are predicted";
  std::string alignment, titles, units, over;
  std::vector<std::string> rows(table.rows.size());
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    const auto& [title, key, is_number, audience, drop] = table.columns[c];
    if (c > 0 && !is_number) continue;  // words are for the terminal
    if (key == "measured_step_time_s") caption += " but the measured step and its error";
    alignment += c > 0 ? "r" : "l";
    const std::size_t unit = std::min(title.find(" ["), title.size());
    titles += (c > 0 ? " & " : "") + latex_text(title.substr(0, unit));
    units += c > 0 ? " &" : "";
    units += title.ends_with(" [us]") ? " [$\\mu$s]" : latex_text(title.substr(unit));
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const std::string& text = table.rows[r][c].text;
      rows[r] += (c > 0 ? " & " : "") + (text == "-" ? "--" : latex_text(text));
      if (c > 0 || results.at(r).fits() || !results[r].error.empty()) continue;
      rows[r] += "$^\\dagger$";
      over = " $^\\dagger$~Does not fit in memory.";
    }
  }
  std::string out = "% \\usepackage{booktabs}\n\\begin{table}\n  \\centering\n  \\caption{" +
                    caption + "; compute and communication are means over the GPUs." + over +
                    "}\n  \\begin{tabular}{" + alignment + "}\n    \\toprule\n    " + titles +
                    " \\\\\n   " + units + " \\\\\n    \\midrule\n";
  for (const std::string& row : rows) out += "    " + row + " \\\\\n";
  return out + "    \\bottomrule\n  \\end{tabular}\n\\end{table}\n";
}

}  // namespace parsim::report
