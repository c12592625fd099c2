// Dropout: which elements stay follows from a formula, so that no mask is stored, the backward pass
// repeats it, and parts on several devices agree. tests/support/numeric_gather.cpp has it, too.
#pragma once

#include "hw/math/numbers.hpp"
#include "hw/math/view.hpp"

namespace parsim::hw {

/// Number n of the SplitMix64 sequence that a layer begins: n counts the elements of the global
/// batch, row-major. An element stays if the number's upper 24 bits, as a fraction of 1, are at
/// least the rate.
[[nodiscard]] constexpr bool stays(std::uint64_t layer, std::uint64_t n, float rate) {
  const std::uint64_t begin = splitmix64(layer + 1);
  const std::uint64_t bits = splitmix64(begin + n * splitmix64_step) >> 40U;
  return static_cast<float>(bits) * 0x1p-24F >= rate;
}

/// y from x, or what is added to x's gradient from y's: both lie alike if `packed` calls it.
template <class T>
struct Dropped {
  Loops loops;  ///< over the part, in the order of the memory of `to`
  View<T> from, to;
  std::int32_t extent[most_axes] = {1, 1, 1, 1, 1, 1};  ///< of the whole tensor
  std::uint64_t layer = 0;
  std::int64_t first_sample = 0;  ///< of the micro-batch in the global batch
  bool plain = false;             ///< whole samples, row-major: elements count on
  std::int64_t first = 0;         ///< of a plain part: its first element's number
  float rate = 0;
  bool backward = false;

  constexpr void operator()(std::uint32_t i) const {
    const Index at = loops.index(i);
    const Wide<T> value = from.wide(at) * factor(number(at));
    if (backward) {
      add_to(to(at), value, false);
    } else {
      to(at) = static_cast<T>(value);
    }
  }
  /// Where all lie alike and without gaps.
  constexpr Wide<T> operator()(std::uint32_t i, const Wide<T> (&v)[1]) const {
    return v[0] * factor(plain ? first + i : number(loops.index(i)));
  }

 private:
  [[nodiscard]] constexpr std::int64_t number(const Index& at) const {
    std::int64_t n = first_sample + at.at[0];
    for (int a = 1; a < most_axes; ++a) n = n * extent[a] + at.at[a];
    return n;
  }
  [[nodiscard]] constexpr Wide<T> factor(std::int64_t n) const {
    const auto kept = Wide<T>{1} - static_cast<Wide<T>>(rate);
    return stays(layer, static_cast<std::uint64_t>(n), rate) ? Wide<T>{1} / kept : Wide<T>{0};
  }
};

}  // namespace parsim::hw
