// Numbers and lists in text: of command lines and files of others, and for messages and reports.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace parsim {

/// Three significant digits, more only where the integer part has more; "-" for NaN.
[[nodiscard]] std::string three_digits(double value);

/// A deviation with its sign: "+12.3 %", "-4.0 %"; "0.0 %" for what rounds to it from either side.
[[nodiscard]] std::string signed_percent(double fraction);

/// "1 change", "2 changes", "0 micro-batches".
[[nodiscard]] std::string counted(std::int64_t number, std::string_view thing);

/// The parts of `text` between separators, at least one.
[[nodiscard]] std::vector<std::string> split_at(std::string_view text, char separator);
/// The words between blanks, tabs and line ends.
[[nodiscard]] std::vector<std::string_view> split_at_blanks(std::string_view text);

/// Text for an element or a quoted attribute of XML or HTML. Control characters become '?': XML 1.0
/// has no way to write most of them, and a reader of attributes turns line ends into blanks.
[[nodiscard]] std::string xml_escaped(std::string_view text);

/// The number that all of `text` is, in decimal digits of any locale; nothing if it is none.
template <class Number>
[[nodiscard]] std::optional<Number> to_number(std::string_view text) {
  Number number{};
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc{} && stop == end ? std::optional(number) : std::nullopt;
}

/// A whole number in decimal digits. Throws InputError for anything else or outside the bounds.
[[nodiscard]] std::int64_t parse_whole(std::string_view text, std::string_view where,
                                       std::int64_t least, std::int64_t most);

/// A decimal number. Throws InputError for anything else or outside the bounds.
[[nodiscard]] double parse_real(std::string_view text, std::string_view where, double least,
                                double most);

/// A share: 0.05 or 5%. Throws InputError for anything else or outside the bounds, which are of the
/// number without '%'. `otherwise` ends the list of what is accepted.
[[nodiscard]] double parse_share(std::string_view text, std::string_view where, double least,
                                 double most, std::string_view otherwise = "");

}  // namespace parsim
