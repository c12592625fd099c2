// bfloat16 for the emulator: the upper half of a float, rounded to nearest, ties to even.
#pragma once

#include <bit>
#include <cstdint>

struct __nv_bfloat16 {
  __nv_bfloat16() = default;
  constexpr __nv_bfloat16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
    const std::uint32_t rounded = nan ? bits | 0x400000U : bits + 0x7fffU + ((bits >> 16) & 1U);
    bits_ = static_cast<std::uint16_t>(rounded >> 16);
  }
  constexpr explicit __nv_bfloat16(double value) : __nv_bfloat16(static_cast<float>(value)) {}
  constexpr operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits_) << 16);
  }

 private:
  std::uint16_t bits_;
};
