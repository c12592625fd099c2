#include "core/units.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/errors.hpp"
#include "core/number_range.hpp"

namespace parsim {

namespace {

/// `factor` times a power of ten; the factor is whole or a power of two.
struct Unit {
  std::string name;
  int decimals = 0;
  double factor = 1.0;
};

/// What can be written for one kind of quantity.
struct Vocabulary {
  std::vector<Unit> units;
  std::string_view examples;
  std::string_view summary;
};

struct Prefix {
  std::string_view name;
  double factor;
};
struct DecimalPrefix {
  std::string_view name;
  int decimals;
};
// Unprefixed last: among equally near suggestions the first wins, and 'KB' should suggest 'kB'.
constexpr DecimalPrefix decimal_prefixes[] = {{"k", 3}, {"M", 6}, {"G", 9}, {"T", 12}, {"", 0}};
constexpr Prefix binary_prefixes[] = {
    {"Ki", 1024.0}, {"Mi", 0x1p20}, {"Gi", 0x1p30}, {"Ti", 0x1p40}};

void append(std::vector<Unit>& units, std::span<const DecimalPrefix> prefixes,
            std::string_view base, double scale = 1.0) {
  for (const DecimalPrefix& prefix : prefixes) {
    units.push_back({fmt::format("{}{}", prefix.name, base), prefix.decimals, scale});
  }
}
void append(std::vector<Unit>& units, std::span<const Prefix> prefixes, std::string_view base) {
  for (const Prefix& prefix : prefixes) {
    units.push_back({fmt::format("{}{}", prefix.name, base), 0, prefix.factor});
  }
}

Vocabulary byte_units() {
  Vocabulary known{{}, "'16 GiB' or '100 MB'", "B with k, M, G, T or Ki, Mi, Gi, Ti"};
  append(known.units, decimal_prefixes, "B");
  append(known.units, binary_prefixes, "B");
  return known;
}

Vocabulary rate_units() {
  Vocabulary known{{},
                   "'25 GB/s' or '200 Gbit/s'",
                   "B/s with k, M, G, T or Ki, Mi, Gi, Ti, bit/s (or b/s) with k, M, G, T"};
  append(known.units, decimal_prefixes, "B/s");
  append(known.units, binary_prefixes, "B/s");
  append(known.units, decimal_prefixes, "bit/s", 1.0 / 8.0);
  append(known.units, decimal_prefixes, "b/s", 1.0 / 8.0);
  return known;
}

Vocabulary flops_units() {
  Vocabulary known{{}, "'10.6 TFLOP/s'", "FLOP/s with k, M, G, T, P"};
  append(known.units, decimal_prefixes, "FLOP/s");
  known.units.push_back({"PFLOP/s", 15});
  return known;
}

Vocabulary time_units() {
  return {{{"s"},
           {"ms", -3},
           {"us", -6},
           {"µs", -6},
           {"ns", -9},
           {"ps", -12},
           {"min", 0, 60.0},
           {"h", 0, 3600.0}},
          "'1.5 us' or '936 ns'",
          "s, ms, us, µs, ns, ps, min, h"};
}

std::string_view trim(std::string_view text) {
  const std::size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

/// The double that is nearest to the decimal number `text` times a power of ten, so that "2000 ns"
/// is "2 us"; a product with 1e-9 may be the next one to it. Nothing if there is none.
std::optional<double> scaled(std::string_view text, int decimals) {
  const std::size_t e = text.find_first_of("eE");
  int exponent = 0;
  if (e != std::string_view::npos) {
    std::string_view digits = text.substr(e + 1);
    if (digits.starts_with('+')) digits.remove_prefix(1);  // which from_chars does not read
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), exponent);
    if (error != std::errc{}) return std::nullopt;
  }
  const std::string shifted = fmt::format("{}e{}", text.substr(0, e), exponent + decimals);
  double number = 0;
  const auto [end, error] =
      std::from_chars(shifted.data(), shifted.data() + shifted.size(), number);
  if (error != std::errc{}) return std::nullopt;
  return number;
}

/// The value in base units: 0 or within that range.
double parse(std::string_view text, const Vocabulary& known, std::string_view where) {
  const std::string example = fmt::format("write for example {}", known.examples);
  const std::string_view trimmed = trim(text);
  double number = 0.0;
  // from_chars and not stod: the result must not depend on the locale.
  const auto [end, error] =
      std::from_chars(trimmed.data(), trimmed.data() + trimmed.size(), number);
  if (error == std::errc::result_out_of_range) {
    throw InputError(where, fmt::format("'{}' is out of range", text), example);
  }
  if (error != std::errc{}) {
    throw InputError(where, fmt::format("'{}' does not begin with a number", text), example);
  }
  if (!std::isfinite(number)) {
    throw InputError(where, fmt::format("'{}' is not a finite number", text), example);
  }
  if (std::signbit(number)) {
    throw InputError(where, fmt::format("'{}' is negative", text), example);
  }
  const std::string_view name =
      trim(trimmed.substr(static_cast<std::size_t>(end - trimmed.data())));
  if (name.empty()) throw InputError(where, fmt::format("'{}' has no unit", text), example);

  std::vector<std::string> names;
  for (const Unit& unit : known.units) {
    if (unit.name == name) {
      const std::string_view digits(trimmed.data(), static_cast<std::size_t>(end - trimmed.data()));
      if (number == 0) return 0;
      const double value = scaled(digits, unit.decimals).value_or(INFINITY) * unit.factor;
      if (value >= least_number && value <= most_number) return value;
      throw InputError(where, fmt::format("'{}' is out of range", text),
                       fmt::format("{}; accepted: 0, and {} to {} without a prefix", example,
                                   least_number, most_number));
    }
    names.push_back(unit.name);
  }
  throw InputError(where, fmt::format("'{}' has the unknown unit '{}'", text, name),
                   fmt::format("accepted: {}{}", known.summary, did_you_mean(name, names)));
}

/// Three significant digits of a magnitude below about 1000; larger ones lose only their fraction.
std::string three_digits(double value) {
  if (value < 9.995) return fmt::format("{:.2f}", value);
  if (value < 99.95) return fmt::format("{:.1f}", value);
  return fmt::format("{:.0f}", value);
}

/// `prefixes` from small to large; a value that would round up to `step` takes the next one.
std::string with_prefix(double value, double step, std::span<const Prefix> prefixes,
                        std::string_view base) {
  if (std::isnan(value)) return fmt::format("nan {}", base);
  const std::string_view sign = value < 0 ? "-" : "";
  const double magnitude = std::abs(value);
  if (std::isinf(value)) return fmt::format("{}infinite {}", sign, base);
  if (magnitude == 0.0) return fmt::format("0 {}", base);
  const Prefix* fitting = prefixes.data();
  for (const Prefix& prefix : prefixes) {
    if (magnitude / fitting->factor < step - 0.5) break;
    fitting = &prefix;
  }
  return fmt::format("{}{} {}{}", sign, three_digits(magnitude / fitting->factor), fitting->name,
                     base);
}

constexpr Prefix rate_prefixes[] = {{"", 1.0},  {"k", 1e3},  {"M", 1e6},
                                    {"G", 1e9}, {"T", 1e12}, {"P", 1e15}};

}  // namespace

Bytes parse_bytes(const std::string& text, const std::string& where) {
  const double value = parse(text, byte_units(), where);
  const double whole = std::round(value);
  constexpr double rounded_from = 1000;
  if (value < rounded_from && value != whole) {
    throw InputError(where, fmt::format("'{}' is not a whole number of bytes", text),
                     fmt::format("write for example {}", byte_units().examples));
  }
  if (whole >= 0x1p63) {
    throw InputError(where, fmt::format("'{}' is out of range", text), "at most 9.2e6 TB");
  }
  return {static_cast<std::int64_t>(whole)};
}

BytesPerSecond parse_rate(const std::string& text, const std::string& where) {
  return {parse(text, rate_units(), where)};
}

FlopsPerSecond parse_flops_rate(const std::string& text, const std::string& where) {
  return {parse(text, flops_units(), where)};
}

Seconds parse_seconds(const std::string& text, const std::string& where) {
  return Seconds{parse(text, time_units(), where)};
}

Watts parse_power(const std::string& text, const std::string& where) {
  Vocabulary known{{}, "'700 W' or '20 kW'", "W with k, M, G, T"};
  append(known.units, decimal_prefixes, "W");
  return {parse(text, known, where)};
}

Money parse_money(const std::string& text, const std::string& where) {
  // A number without a unit stands for one of the currency.
  const bool bare = !text.empty() && text.back() >= '0' && text.back() <= '9';
  const Vocabulary known{
      {{"k", 3}, {"M", 6}, {"units"}}, "'400k' or '2500'", "a number, also with k or M"};
  return {parse(bare ? text + " units" : text, known, where)};
}

MoneyPerHour parse_price(const std::string& text, const std::string& where) {
  const std::size_t slash = text.find('/');
  const auto refuse = [&] {
    throw InputError(where, fmt::format("'{}' is no price", text),
                     "accepted: '2.5 /h', or of a purchase '30k / 4 years'");
  };
  if (slash == std::string::npos) refuse();
  const Money amount = parse_money(std::string(trim(text.substr(0, slash))), where);
  const std::string span(trim(std::string_view(text).substr(slash + 1)));
  if (span == "h") return {amount.value};
  double years = 0;
  const auto [end, error] = std::from_chars(span.data(), span.data() + span.size(), years);
  const std::string_view unit = trim(std::string_view(end, span.data() + span.size()));
  if (error != std::errc{} || !(years >= least_number && years <= most_number)) refuse();
  if (unit != "years" && unit != "year") refuse();
  return {amount.value / (years * (year / hour))};
}

std::string to_text(Seconds time) {
  constexpr Prefix prefixes[] = {{"p", 1e-12}, {"n", 1e-9}, {"u", 1e-6}, {"m", 1e-3}, {"", 1.0}};
  return with_prefix(time.count(), 1000.0, prefixes, "s");
}

std::string to_text(Bytes amount) {
  if (std::abs(static_cast<double>(amount.value)) < 1024.0) {
    return fmt::format("{} B", amount.value);
  }
  return with_prefix(static_cast<double>(amount.value), 1024.0, binary_prefixes, "B");
}

std::string to_text(BytesPerSecond rate) {
  return with_prefix(rate.value, 1000.0, rate_prefixes, "B/s");
}

std::string to_text(FlopsPerSecond rate) {
  return with_prefix(rate.value, 1000.0, rate_prefixes, "FLOP/s");
}

std::string to_text(Watts power) { return with_prefix(power.value, 1000.0, rate_prefixes, "W"); }

}  // namespace parsim
