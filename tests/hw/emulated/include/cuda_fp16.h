// Half precision for the emulator: rounded to nearest, ties to even, by the compiler's _Float16.
#pragma once

#include <cstdint>

struct __half {
  __half() = default;
  constexpr __half(float value) : value_(static_cast<_Float16>(value)) {}
  constexpr explicit __half(double value) : __half(static_cast<float>(value)) {}
  constexpr operator float() const { return static_cast<float>(value_); }

 private:
  _Float16 value_;
};
