// Rotary position embedding: pairs of neighbouring channels turn by an angle that grows with the
// token's position. Formula: core/layer_kinds.hpp, Activation.
#pragma once

#include <cmath>

#include "hw/math/view.hpp"

namespace parsim::hw {

/// A thread for each pair of channels of a token, in all samples: they turn by the same angle.
/// Backward the gradient turns the other way, and is added.
template <class T>
struct Rotary {
  Loops pairs;  ///< over the first channels of the pairs that the part reads, of one sample
  View<T> from, to;
  Box out;  ///< of the part: it may begin or end within a pair
  int axis = 2;
  std::int32_t channels = 0;  ///< of the whole tensor; the last of an odd number stays
  std::uint32_t samples = 1;
  std::int32_t first_sample = 0;
  bool backward = false;

  constexpr void operator()(std::uint32_t i) const {
    const Index first = pairs.index(i, Index{{first_sample}});
    const std::int32_t channel = first.along(axis);
    const Channel a = channel_at(first);
    if (channel + 1 == channels) {
      for (std::uint32_t s = 0; s < samples; ++s) put(a, s, value(a, s));
      return;
    }
    Index second = first;
    second.set(axis, channel + 1);
    const Channel b = channel_at(second);
    const auto token = static_cast<Wide<T>>(axis > 1 ? first.along(axis - 1) : 0);
    constexpr Wide<T> log_of_base = Wide<T>(9.210340371976182736);  // of 10000
    const Wide<T> angle = token * std::exp(-log_of_base * static_cast<Wide<T>>(channel) /
                                           static_cast<Wide<T>>(channels));
    const Wide<T> cosine = std::cos(angle);
    const Wide<T> sine = backward ? -std::sin(angle) : std::sin(angle);
    for (std::uint32_t s = 0; s < samples; ++s) {
      const Wide<T> x = value(a, s);
      const Wide<T> y = value(b, s);
      put(a, s, cosine * x - sine * y);
      put(b, s, sine * x + cosine * y);
    }
  }

 private:
  /// Of a token, in the first sample.
  struct Channel {
    std::int64_t from = 0, to = 0;
    bool own = false;  ///< the part computes it
  };
  [[nodiscard]] constexpr Channel channel_at(const Index& at) const {
    return {from.offset(at), to.offset(at), out.contains(at)};
  }
  /// What other parts compute has no gradient here.
  [[nodiscard]] constexpr Wide<T> value(const Channel& at, std::uint32_t sample) const {
    if (backward && !at.own) return 0;
    return static_cast<Wide<T>>(from.data[at.from + from.stride[0] * sample]);
  }
  constexpr void put(const Channel& at, std::uint32_t sample, Wide<T> value) const {
    if (!backward && !at.own) return;
    T& target = to.data[at.to + to.stride[0] * sample];
    if (backward) {
      add_to(target, value, false);
    } else {
      target = static_cast<T>(value);
    }
  }
};

}  // namespace parsim::hw
