// Rotary position embedding: pairs of neighbouring channels turn by an angle that grows with the
// token's position. Formula: core/layer_kinds.hpp, Activation.
#pragma once

#include <cmath>

#include "hw/math/view.hpp"

namespace parsim::hw {

/// A thread for each pair. Backward the gradient turns the other way, and is added.
template <class T>
struct Rotary {
  Loops pairs;  ///< over the first channels of the pairs that the part reads
  View<T> from, to;
  Box out;  ///< of the part: it may begin or end within a pair
  int axis = 2;
  std::int32_t channels = 0;  ///< of the whole tensor; the last of an odd number stays
  bool backward = false;

  constexpr void operator()(std::uint32_t i) const {
    const Index first = pairs.index(i);
    const std::int32_t channel = first.along(axis);
    if (channel + 1 == channels) return put(first, value(first));
    Index second = first;
    second.set(axis, channel + 1);
    const auto token = static_cast<Wide<T>>(axis > 1 ? first.along(axis - 1) : 0);
    constexpr Wide<T> log_of_base = Wide<T>(9.210340371976182736);  // of 10000
    const Wide<T> angle = token * std::exp(-log_of_base * static_cast<Wide<T>>(channel) /
                                           static_cast<Wide<T>>(channels));
    const Wide<T> c = std::cos(angle);
    const Wide<T> s = backward ? -std::sin(angle) : std::sin(angle);
    const Wide<T> a = value(first);
    const Wide<T> b = value(second);
    put(first, c * a - s * b);
    put(second, s * a + c * b);
  }

 private:
  /// What other parts compute has no gradient here.
  [[nodiscard]] constexpr Wide<T> value(const Index& at) const {
    return backward && !out.contains(at) ? Wide<T>{0} : from.wide(at);
  }
  constexpr void put(const Index& at, Wide<T> value) const {
    if (backward) {
      add_to(to(at), value, false);
    } else if (out.contains(at)) {
      to(at) = static_cast<T>(value);
    }
  }
};

}  // namespace parsim::hw
