#include "core/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/errors.hpp"

namespace parsim {

std::string three_digits(double value) {
  if (std::isnan(value)) return "-";
  if (value == 0.0) return "0";
  // Rounding first, so that 9.996 becomes 10.0 and not 10.00.
  const double magnitude = std::abs(value);
  if (magnitude < 1e-4) return fmt::format("{:.2e}", value);
  int decimals = 0;
  for (double limit = 99.95; magnitude < limit && decimals < 6; limit /= 10) ++decimals;
  return fmt::format("{:.{}f}", value, decimals);
}

std::string signed_percent(double fraction) {
  const std::string text = fmt::format("{:+.1f} %", 100 * fraction);
  return text.substr(1) == "0.0 %" ? text.substr(1) : text;
}

std::string counted(std::int64_t number, std::string_view thing) {
  return fmt::format("{} {}{}", number, thing,
                     number == 1             ? ""
                     : thing.ends_with("ch") ? "es"
                                             : "s");
}

std::vector<std::string> split_at(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0;;) {
    const std::size_t end = text.find(separator, begin);
    parts.emplace_back(text.substr(begin, end - begin));
    if (end == std::string_view::npos) return parts;
    begin = end + 1;
  }
}

std::vector<std::string_view> split_at_blanks(std::string_view text) {
  constexpr std::string_view blanks = " \t\r\n";
  std::vector<std::string_view> words;
  std::size_t at = 0;
  while ((at = text.find_first_not_of(blanks, at)) != text.npos) {
    const std::size_t end = std::min(text.find_first_of(blanks, at), text.size());
    words.push_back(text.substr(at, end - at));
    at = end;
  }
  return words;
}

std::string xml_escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
    }
  }
  return out;
}

std::int64_t parse_whole(std::string_view text, std::string_view where, std::int64_t least,
                         std::int64_t most) {
  const auto number = to_number<std::int64_t>(text);
  if (number && *number >= least && *number <= most) return *number;
  throw InputError(where, fmt::format("'{}'", text),
                   fmt::format("accepted: a whole number from {} to {}", least, most));
}

double parse_real(std::string_view text, std::string_view where, double least, double most) {
  const auto number = to_number<double>(text);
  if (number && *number >= least && *number <= most) return *number;
  throw InputError(where, fmt::format("'{}'", text),
                   fmt::format("accepted: a number from {} to {}", least, most));
}

double parse_share(std::string_view text, std::string_view where, double least, double most,
                   std::string_view otherwise) {
  constexpr double percent = 100;
  const bool in_percent = text.ends_with('%');
  const double factor = in_percent ? percent : 1;
  const auto number = to_number<double>(text.substr(0, text.size() - (in_percent ? 1 : 0)));
  if (number && *number >= factor * least && *number <= factor * most) return *number / factor;
  throw InputError(where, fmt::format("'{}'", text),
                   fmt::format("accepted: a number from {} to {}, or from {}% to {}%{}", least,
                               most, percent * least, percent * most, otherwise));
}

}  // namespace parsim
