// Small pieces of HTML and SVG text. Names come from files: nothing reaches a page unescaped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "report/document.hpp"

namespace parsim::report {

/// Text escaped for an HTML element or a quoted attribute. Control characters become '?'; text
/// longer than `longest` bytes ends in an ellipsis.
[[nodiscard]] std::string html(std::string_view text, std::size_t longest = 2000);
/// Lines for an element, not for an attribute: quotes stay as they are.
[[nodiscard]] std::string html_lines(std::string_view text);
/// A name, shortened.
[[nodiscard]] std::string html_name(std::string_view name);

/// The text with no line break between a number and its unit: "uses 6.85 % of 12.0 GB/s".
[[nodiscard]] std::string unbroken(std::string_view text);

/// JSON for a script element: no '<', so that no text in it can end the element.
[[nodiscard]] std::string json_for_script(std::string_view json);

/// A coordinate with at most one decimal: "12.5", "3".
[[nodiscard]] std::string coordinate(double value);
/// A share of a whole as a length: "12.3%".
[[nodiscard]] std::string width_percent(double share);

/// The table with sortable columns; numbers carry their exact value for sorting. As `cards` every
/// row is a box with the columns' titles on narrow screens, so that none is cut.
[[nodiscard]] std::string html_table(const Table& table, bool cards = false);

}  // namespace parsim::report
