// Quantities with units. A number with a unit is never a bare double in a signature, and only
// the combinations that mean something compile: bytes / rate is a time, nothing else mixes.
#pragma once

#include <chrono>
#include <compare>
#include <cstdint>
#include <string>

#include "core/spelling.hpp"

namespace parsim {

using Seconds = std::chrono::duration<double>;

/// A number that carries its unit in its type.
template <class Tag, class Rep>
struct Quantity {
  Rep value{};

  friend constexpr auto operator<=>(const Quantity&, const Quantity&) = default;
  friend constexpr Quantity operator+(Quantity a, Quantity b) { return {a.value + b.value}; }
  friend constexpr Quantity operator-(Quantity a, Quantity b) { return {a.value - b.value}; }
  friend constexpr Quantity operator*(Quantity a, Rep factor) { return {a.value * factor}; }
  friend constexpr Quantity operator*(Rep factor, Quantity a) { return {a.value * factor}; }
  constexpr Quantity& operator+=(Quantity other) {
    value += other.value;
    return *this;
  }
};

using Bytes = Quantity<struct BytesTag, std::int64_t>;  ///< exact, so that conservation is testable
using Flops = Quantity<struct FlopsTag, double>;        ///< 2 x multiply-accumulates
using BytesPerSecond = Quantity<struct BytesPerSecondTag, double>;
using FlopsPerSecond = Quantity<struct FlopsPerSecondTag, double>;
using Watts = Quantity<struct WattsTag, double>;
using Joules = Quantity<struct JoulesTag, double>;
/// In one currency, the user's.
using Money = Quantity<struct MoneyTag, double>;
using MoneyPerHour = Quantity<struct MoneyPerHourTag, double>;

constexpr Seconds operator/(Bytes amount, BytesPerSecond rate) {
  return Seconds{static_cast<double>(amount.value) / rate.value};
}
constexpr BytesPerSecond operator/(Bytes amount, Seconds time) {
  return {static_cast<double>(amount.value) / time.count()};
}
constexpr Seconds operator/(Flops amount, FlopsPerSecond rate) {
  return Seconds{amount.value / rate.value};
}
constexpr Joules operator*(Watts power, Seconds time) { return {power.value * time.count()}; }
inline constexpr Seconds hour{3600};
constexpr Money operator*(MoneyPerHour price, Seconds time) {
  return {price.value * (time / hour)};
}
/// Of 365 days.
inline constexpr Seconds year = 8760 * hour;

/// Floating-point format of a training step: element size and which peak of a device applies. The
/// last three multiply in FP8 and store bf16 (core/fp8.hpp).
enum class Precision : std::uint8_t { fp32, tf32, fp16, bf16, fp8, fp8_delayed, fp8_blockwise };
constexpr std::array<std::string_view, 7> spellings(Precision) {
  return {"fp32", "tf32", "fp16", "bf16", "fp8", "fp8-delayed", "fp8-blockwise"};
}

/// True for the recipes that multiply in FP8.
[[nodiscard]] constexpr bool multiplies_in_fp8(Precision precision) {
  return precision >= Precision::fp8;
}

/// Bytes of one tensor element: 4 for fp32 and tf32, 2 for fp16, bf16 and what stores bf16.
[[nodiscard]] constexpr std::int64_t element_bytes(Precision precision) {
  return precision == Precision::fp32 || precision == Precision::tf32 ? 4 : 2;
}

/// The format of a step without its products in FP8: bf16 for these recipes, else the same.
[[nodiscard]] constexpr Precision without_fp8(Precision precision) {
  return multiplies_in_fp8(precision) ? Precision::bf16 : precision;
}

/// The format in which a precision stores its tensors: tf32 is a way to multiply fp32, FP8 one to
/// multiply bf16.
[[nodiscard]] constexpr Precision storage_of(Precision precision) {
  return precision == Precision::tf32 ? Precision::fp32 : without_fp8(precision);
}

/// Parses `"400 Gbit/s"`, `"25GB/s"`, `"936 ns"`, `"80 GiB"`, `"10.6 TFLOP/s"`. k/M/G/T are powers
/// of 1000, Ki/Mi/Gi/Ti powers of 1024; bits are understood for rates only. A bare number is
/// refused.
///
/// where   location of the text (`file:line:key` or `--flag`), used in the message
///
/// Bytes from 1 kB on are rounded to whole ones: reports print "15.9 GiB". Fewer must be whole.
///
/// Throws InputError for an unknown unit, a missing unit, a negative, infinite or unreadable
/// number.
[[nodiscard]] Bytes parse_bytes(const std::string& text, const std::string& where);
[[nodiscard]] BytesPerSecond parse_rate(const std::string& text, const std::string& where);
[[nodiscard]] FlopsPerSecond parse_flops_rate(const std::string& text, const std::string& where);
[[nodiscard]] Seconds parse_seconds(const std::string& text, const std::string& where);
/// "700 W", "20kW".
[[nodiscard]] Watts parse_power(const std::string& text, const std::string& where);
/// "400k", "1.2M", "2500".
[[nodiscard]] Money parse_money(const std::string& text, const std::string& where);
/// "2.5 /h", or of a purchase by the hours of its life, "30k / 4 years".
[[nodiscard]] MoneyPerHour parse_price(const std::string& text, const std::string& where);

/// Three significant digits with a prefix that fits: "7.37 ms", "25.0 GB/s", "1.50 GiB".
[[nodiscard]] std::string to_text(Seconds time);
[[nodiscard]] std::string to_text(Bytes amount);
[[nodiscard]] std::string to_text(BytesPerSecond rate);
[[nodiscard]] std::string to_text(FlopsPerSecond rate);
[[nodiscard]] std::string to_text(Watts power);

}  // namespace parsim
