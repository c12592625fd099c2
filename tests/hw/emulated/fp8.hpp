// FP8 of the emulated GPUs (Micikevicius et al. 2022, "FP8 Formats for Deep Learning", table 1):
// E4M3 without infinities, largest number 448; E5M2 with IEEE's, largest finite number 57344.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace emulated {

struct Fp8Format {
  int mantissa = 3, bias = 7;
  std::uint8_t largest = 0x7e;  ///< code of the largest finite number
};
inline constexpr Fp8Format e4m3{3, 7, 0x7e}, e5m2{2, 15, 0x7b};

/// The nearest number's code, of two as near the even one; beyond the largest, that.
[[nodiscard]] inline std::uint8_t to_fp8(const Fp8Format& format, float value) {
  const auto sign = static_cast<std::uint8_t>(std::signbit(value) ? 0x80 : 0);
  const double size = std::fabs(static_cast<double>(value));
  if (std::isnan(size)) return sign | 0x7f;
  int exponent = 1 - format.bias;
  if (size > 0) exponent = std::max(exponent, static_cast<int>(std::ilogb(std::min(size, 1e30))));
  const double ulps = std::nearbyint(std::ldexp(std::min(size, 1e30), format.mantissa - exponent));
  const double code = std::ldexp(exponent + format.bias - 1, format.mantissa) + ulps;
  return code < format.largest ? static_cast<std::uint8_t>(sign | static_cast<int>(code))
                               : static_cast<std::uint8_t>(sign | format.largest);
}

[[nodiscard]] inline float from_fp8(const Fp8Format& format, std::uint8_t code) {
  const int size = code & 0x7f;
  const int field = size >> format.mantissa;
  const int one = 1 << format.mantissa;
  double value = 0;
  if (size > format.largest) {
    value = format.mantissa == 2 && size == 0x7c ? INFINITY : NAN;
  } else if (field == 0) {
    value = std::ldexp(size, 1 - format.bias - format.mantissa);
  } else {
    value = std::ldexp(one + size % one, field - format.bias - format.mantissa);
  }
  return static_cast<float>((code & 0x80) != 0 ? -value : value);
}

}  // namespace emulated
