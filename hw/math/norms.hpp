// Normalisations. Elements that share mean and variance form a group; rows of the reductions are
// groups, or channels for the gradients of scale and shift.
#pragma once

#include <cmath>

#include "hw/math/view.hpp"

namespace parsim::hw {

inline constexpr double norm_epsilon = 1e-5;

/// A part of a normalisation.
template <class T>
struct NormPart {
  Loops groups;   ///< over the axes that tell groups apart (channels: first of each group)
  Loops members;  ///< over the elements of a group
  View<T> x, scale, shift, dy;
  Wide<T>* mean = nullptr;          ///< by group
  Wide<T>* scatter = nullptr;       ///< by group: 1/sqrt(variance + epsilon)
  Wide<T>* gradient_sum = nullptr;  ///< by group: sum of g, g = gradient · scale
  Wide<T>* gradient_dot = nullptr;  ///< by group: sum of g · normalised x
  Box out;
  int channel_axis = 1;
  bool affine = false;

  /// Number of an element's group, as `groups` counts them.
  [[nodiscard]] constexpr std::uint32_t number(const Index& at) const {
    std::uint32_t n = 0;
    for (int l = 0; l < groups.count; ++l) {
      const Loops::Loop& loop = groups.loop[l];
      n = n * loop.extent + static_cast<std::uint32_t>((at.at[loop.axis] - loop.begin) / loop.step);
    }
    return n;
  }
  [[nodiscard]] constexpr Index at(std::uint32_t row, std::uint32_t i) const {
    return members.index(i, groups.index(row));
  }
  [[nodiscard]] constexpr Wide<T> normal(const Index& index, std::uint32_t row) const {
    return (x.wide(index) - mean[row]) * scatter[row];
  }
  /// Gradient times scale; 0 outside the part.
  [[nodiscard]] constexpr Wide<T> scaled(const Index& index) const {
    if (!out.contains(index)) return 0;
    const Wide<T> gradient = dy.wide(index);
    return affine ? gradient * scale.wide(Index{{index.at[channel_axis]}}) : gradient;
  }
};

template <class T>
struct NormMean {
  NormPart<T> part;
  [[nodiscard]] constexpr Sums<Wide<T>> term(std::uint32_t row, std::uint32_t i) const {
    return {part.x.wide(part.at(row, i)), 0};
  }
  constexpr void finish(std::uint32_t row, Sums<Wide<T>> sums) const {
    part.mean[row] = sums.first / static_cast<Wide<T>>(part.members.size());
  }
};

template <class T>
struct NormScatter {
  NormPart<T> part;
  [[nodiscard]] constexpr Sums<Wide<T>> term(std::uint32_t row, std::uint32_t i) const {
    const Wide<T> gap = part.x.wide(part.at(row, i)) - part.mean[row];
    return {gap * gap, 0};
  }
  constexpr void finish(std::uint32_t row, Sums<Wide<T>> sums) const {
    const Wide<T> variance = sums.first / static_cast<Wide<T>>(part.members.size());
    part.scatter[row] = Wide<T>{1} / std::sqrt(variance + Wide<T>(norm_epsilon));
  }
};

template <class T>
struct NormForward {
  Loops loops;  ///< over part.out
  NormPart<T> part;
  View<T> y;

  constexpr void operator()(std::uint32_t i) const {
    const Index at = loops.index(i);
    Wide<T> value = part.normal(at, part.number(at));
    if (part.affine) {
      const Index channel{{at.at[part.channel_axis]}};
      value = value * part.scale.wide(channel) + part.shift.wide(channel);
    }
    y(at) = static_cast<T>(value);
  }
};

template <class T>
struct NormGradientSums {
  NormPart<T> part;
  [[nodiscard]] constexpr Sums<Wide<T>> term(std::uint32_t row, std::uint32_t i) const {
    const Index at = part.at(row, i);
    const Wide<T> g = part.scaled(at);
    return {g, g * part.normal(at, row)};
  }
  constexpr void finish(std::uint32_t row, Sums<Wide<T>> sums) const {
    part.gradient_sum[row] = sums.first;
    part.gradient_dot[row] = sums.second;
  }
};

// With n elements in a group:  dx = (g - sum(g)/n - x^ · sum(g·x^)/n) / sqrt(variance + epsilon)
template <class T>
struct NormBackward {
  Loops loops;  ///< over what the part reads
  NormPart<T> part;
  View<T> dx;

  constexpr void operator()(std::uint32_t i) const {
    const Index at = loops.index(i);
    const std::uint32_t row = part.number(at);
    const auto n = static_cast<Wide<T>>(part.members.size());
    const Wide<T> value = part.scaled(at) - part.gradient_sum[row] / n -
                          part.normal(at, row) * part.gradient_dot[row] / n;
    add_to(dx(at), value * part.scatter[row], false);
  }
};

/// Gradients of scale (first) and shift (second). Rows are channels.
template <class T>
struct NormParameters {
  NormPart<T> part;
  Loops positions;  ///< over part.out without the channel axis
  std::int32_t first = 0;
  View<T> scale_gradient, shift_gradient;
  bool atomic = false;

  [[nodiscard]] constexpr Sums<Wide<T>> term(std::uint32_t row, std::uint32_t i) const {
    Index start{};
    start.at[part.channel_axis] = first + static_cast<std::int32_t>(row);
    const Index at = positions.index(i, start);
    const Wide<T> gradient = part.dy.wide(at);
    return {gradient * part.normal(at, part.number(at)), gradient};
  }
  constexpr void finish(std::uint32_t row, Sums<Wide<T>> sums) const {
    const Index channel{{first + static_cast<std::int32_t>(row)}};
    add_to(scale_gradient(channel), sums.first, atomic);
    add_to(shift_gradient(channel), sums.second, atomic);
  }
};

/// Local response normalisation: y = x · d^(-3/4), d = 1 + 1/size · sum of x² over the neighbouring
/// channels (the factor 1e-4 of Krizhevsky et al. 2012 is 1 here, so that a neglected neighbour
/// shows in numeric checks; the work is the same).
template <class T>
struct ResponsePart {
  View<T> x;
  std::int32_t channels = 0, size = 1;  ///< of the whole input
  Box out;

  [[nodiscard]] constexpr Wide<T> divisor(Index at) const {
    const std::int32_t here = at.at[1];
    Wide<T> sum = 0;
    for (at.at[1] = here - size / 2; at.at[1] <= here + (size - 1) / 2; ++at.at[1]) {
      if (at.at[1] < 0 || at.at[1] >= channels) continue;
      sum += x.wide(at) * x.wide(at);
    }
    return 1 + sum / static_cast<Wide<T>>(size);
  }
};

template <class T>
struct ResponseForward {
  Loops loops;
  ResponsePart<T> part;
  View<T> y;

  constexpr void operator()(std::uint32_t i) const {
    const Index at = loops.index(i);
    y(at) = static_cast<T>(part.x.wide(at) * std::pow(part.divisor(at), Wide<T>(-0.75)));
  }
};

/// Per input element c, over the outputs i of the part whose neighbourhood holds it:
/// dx_c = g_c d_c^(-3/4) - 3/2 · x_c/size · sum of g_i x_i d_i^(-7/4).
template <class T>
struct ResponseBackward {
  Loops loops;
  ResponsePart<T> part;
  View<T> dy, dx;

  constexpr void operator()(std::uint32_t i) const {
    const Index at = loops.index(i);
    Wide<T> sum = 0;
    Wide<T> through = 0;
    if (part.out.contains(at)) {
      sum = dy.wide(at) * std::pow(part.divisor(at), Wide<T>(-0.75));
    }
    // c lies in the neighbourhood of o if o - size/2 <= c <= o + (size-1)/2.
    Index o = at;
    for (o.at[1] = at.at[1] - (part.size - 1) / 2; o.at[1] <= at.at[1] + part.size / 2; ++o.at[1]) {
      if (!part.out.contains(o)) continue;
      through += dy.wide(o) * part.x.wide(o) * std::pow(part.divisor(o), Wide<T>(-1.75));
    }
    sum -= Wide<T>(1.5) * part.x.wide(at) / static_cast<Wide<T>>(part.size) * through;
    add_to(dx(at), sum, false);
  }
};

}  // namespace parsim::hw
