// Cells of comma-separated tables.
#pragma once

#include <string>

namespace parsim::report {

/// As in RFC 4180: quoted if it has a comma, a quote or a line break, quotes doubled. A text that a
/// spreadsheet would take for a formula (it begins with =, +, -, @, a tab or a carriage return and
/// is no number) gets an apostrophe in front: names come from files that others wrote. Source:
/// OWASP, "CSV Injection".
[[nodiscard]] std::string csv_cell(const std::string& text);

}  // namespace parsim::report
