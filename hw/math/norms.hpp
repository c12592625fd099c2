// Normalisations. Elements that share mean and variance form a group; rows of the reductions are
// groups, or channels for the gradients of scale and shift.
#pragma once

#include <cmath>

#include "hw/math/pointwise.hpp"
#include "hw/math/view.hpp"

namespace parsim::hw {

inline constexpr double norm_epsilon = 1e-5;

/// Operands of a reduction whose rows lie side by side: term i of row r is at from[n][i * step +
/// r]. Without operands rows don't; with them, term(begin(r), values) is what term(begin(r), i) is.
template <class T, int N>
struct Columns {
  using Scalar = T;
  static constexpr int operands = N;
  const T* from[N] = {};
  std::uint32_t step = 0;
};

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
  /// The part reads what it computes, and all tensors lie alike: offsets of groups and members say
  /// where, without positions. A group has one channel (batch), or all of them in order (layer).
  bool plain = false;
  bool channel_is_group = false;
  Walk<1> group_walk, member_walk;
  std::int64_t first = 0;          ///< of the part in x and dy
  std::int32_t first_channel = 0;  ///< of the part
  std::uint32_t inner = 1;         ///< elements from one group to the next in memory

  [[nodiscard]] constexpr Index at(std::uint32_t row, std::uint32_t i) const {
    return members.index(i, groups.index(row));
  }
  [[nodiscard]] constexpr std::int64_t offset_in(const Walk<1>& walk, std::uint32_t i) const {
    std::int64_t offset[1] = {};
    walk.at(i, offset);
    return offset[0];
  }
  /// What a row's terms share.
  struct Row {
    std::uint32_t number;
    std::int64_t base;  ///< of a plain part: offset of its elements
    Wide<T> pivot;      ///< what is taken from its elements
  };
  [[nodiscard]] constexpr Row row(std::uint32_t number) const {
    return {number, plain ? first + offset_in(group_walk, number) : 0, 0};
  }
  [[nodiscard]] constexpr Wide<T> element(const Row& row, std::uint32_t i) const {
    return plain ? static_cast<Wide<T>>(x.data[row.base + offset_in(member_walk, i)])
                 : x.wide(at(row.number, i));
  }
  [[nodiscard]] constexpr Wide<T> normal(Wide<T> value, std::uint32_t row) const {
    return (value - mean[row]) * scatter[row];
  }
  /// Of scale or shift.
  [[nodiscard]] constexpr Wide<T> of_channel(const View<T>& view, std::int32_t channel) const {
    return static_cast<Wide<T>>(view.data[(channel - view.begin[0]) * view.stride[0]]);
  }
  /// Gradient times scale; 0 outside the part.
  [[nodiscard]] constexpr Wide<T> scaled(const Index& index) const {
    if (!out.contains(index)) return 0;
    const Wide<T> gradient = dy.wide(index);
    return affine ? gradient * of_channel(scale, index.along(channel_axis)) : gradient;
  }
  /// Rows of a plain part that lie side by side: element i of a row is `groups.size()` elements
  /// from element i - 1.
  [[nodiscard]] constexpr bool by_columns() const {
    return plain && channel_is_group && inner == 1;
  }
  /// Of the i-th element of a plain part in memory's order.
  struct Place {
    std::uint32_t row = 0;
    std::int32_t channel = 0;
  };
  [[nodiscard]] constexpr Place place(std::uint32_t i, std::uint32_t rows) const {
    const std::uint32_t outer = inner == 1 ? i : i / inner;
    const std::uint32_t row = outer % rows;
    const std::uint32_t channel = channel_is_group ? row : i - outer * inner;
    return {row, first_channel + static_cast<std::int32_t>(channel)};
  }
};

/// Mean and variance of every group in one go: sums of differences to its first element.
template <class T>
struct NormStatistics {
  NormPart<T> part;
  bool terms_adjacent = false;
  Columns<T, 1> columns;
  using Row = typename NormPart<T>::Row;
  [[nodiscard]] constexpr Row begin(std::uint32_t number) const {
    Row row = part.row(number);
    row.pivot = part.element(row, 0);
    return row;
  }
  [[nodiscard]] constexpr Sums<Wide<T>> term(const Row& row, std::uint32_t i) const {
    return term(row, {part.element(row, i)});
  }
  /// Of an element: x.
  [[nodiscard]] constexpr Sums<Wide<T>> term(const Row& row, const Wide<T> (&v)[1]) const {
    const Wide<T> gap = v[0] - row.pivot;
    return {gap, gap * gap};
  }
  constexpr void finish(std::uint32_t row, Sums<Wide<T>> sums) const {
    const auto n = static_cast<Wide<T>>(part.members.size());
    const Wide<T> gap = sums.first / n;
    const Wide<T> variance = sums.second / n - gap * gap;
    part.mean[row] = begin(row).pivot + gap;
    part.scatter[row] =
        Wide<T>{1} / std::sqrt((variance > 0 ? variance : 0) + Wide<T>(norm_epsilon));
  }
};

template <class T>
struct NormForward {
  Loops loops;  ///< over part.out
  NormPart<T> part;
  View<T> y;
  std::uint32_t rows = 1;

  constexpr void operator()(std::uint32_t i) const {
    const Index at = loops.index(i);
    y(at) = static_cast<T>(
        made(part.groups.number(at), at.along(part.channel_axis))({part.x.wide(at)}));
  }
  /// Of a plain part, in memory's order.
  constexpr Wide<T> operator()(std::uint32_t i, const Wide<T> (&v)[1]) const {
    const auto [row, channel] = part.place(i, rows);
    return made(row, channel)(v);
  }
  /// What the elements of a group and channel share.
  struct Made {
    Wide<T> mean = 0, factor = 0, shift = 0;
    constexpr Wide<T> operator()(const Wide<T> (&v)[1]) const {
      return (v[0] - mean) * factor + shift;
    }
  };
  [[nodiscard]] constexpr Made made(std::uint32_t row, std::int32_t channel) const {
    if (!part.affine) return {part.mean[row], part.scatter[row], 0};
    return {part.mean[row], part.scatter[row] * part.of_channel(part.scale, channel),
            part.of_channel(part.shift, channel)};
  }
  [[nodiscard]] constexpr bool by_columns() const { return part.by_columns(); }
  [[nodiscard]] constexpr Made column(std::uint32_t row) const {
    return made(row, part.first_channel + static_cast<std::int32_t>(row));
  }
};

/// Where a group is a channel, also the gradients of its scale and shift.
template <class T>
struct NormGradientSums {
  NormPart<T> part;
  View<T> scale_gradient, shift_gradient;  ///< of no memory: elsewhere
  bool atomic = false;
  bool terms_adjacent = false;
  Columns<T, 2> columns;

  using Row = typename NormPart<T>::Row;
  [[nodiscard]] constexpr Row begin(std::uint32_t number) const {
    Row row = part.row(number);
    row.pivot = part.mean[number];
    return row;
  }
  [[nodiscard]] constexpr Sums<Wide<T>> term(const Row& row, std::uint32_t i) const {
    if (part.plain) {
      const std::int64_t at = row.base + part.offset_in(part.member_walk, i);
      auto g = static_cast<Wide<T>>(part.dy.data[at]);
      if (part.affine && !part.channel_is_group) {
        g *= part.of_channel(part.scale, part.first_channel + static_cast<std::int32_t>(i));
      }
      return term(row, {static_cast<Wide<T>>(part.x.data[at]), g});
    }
    const Index at = part.at(row.number, i);
    return term(row, {part.x.wide(at), part.scaled(at)});
  }
  /// Of an element: x, and the gradient of what it became, times scale where that is the row's own.
  [[nodiscard]] constexpr Sums<Wide<T>> term(const Row& row, const Wide<T> (&v)[2]) const {
    return {v[1], v[1] * (v[0] - row.pivot)};
  }
  constexpr void finish(std::uint32_t row, Sums<Wide<T>> sums) const {
    sums.second *= part.scatter[row];
    Wide<T> factor = 1;
    if (part.plain && part.affine && part.channel_is_group) {
      const Index channel{{part.first_channel + static_cast<std::int32_t>(row)}};
      factor = part.scale.wide(channel);
      if (scale_gradient.data != nullptr) {
        add_to(scale_gradient(channel), sums.second, atomic);
        add_to(shift_gradient(channel), sums.first, atomic);
      }
    }
    part.gradient_sum[row] = factor * sums.first;
    part.gradient_dot[row] = factor * sums.second;
  }
};

// With n elements in a group:  dx = (g - sum(g)/n - x^ · sum(g·x^)/n) / sqrt(variance + epsilon)
template <class T>
struct NormBackward {
  Loops loops;  ///< over what the part reads
  NormPart<T> part;
  View<T> dx;
  std::uint32_t rows = 1;

  constexpr void operator()(std::uint32_t i) const {
    const Index at = loops.index(i);
    const std::uint32_t row = part.groups.number(at);
    add_to(dx(at), made(row, 1)({part.x.wide(at), part.scaled(at)}), false);
  }
  /// Of a plain part, in memory's order: x and the output's gradient.
  constexpr Wide<T> operator()(std::uint32_t i, const Wide<T> (&v)[2]) const {
    const auto [row, channel] = part.place(i, rows);
    return made(row, part.affine ? part.of_channel(part.scale, channel) : 1)(v);
  }
  /// What the elements of a group and channel share.
  struct Made {
    Wide<T> mean = 0, factor = 0, slope = 0, product = 0;
    constexpr Wide<T> operator()(const Wide<T> (&v)[2]) const {
      return v[1] * factor - slope - (v[0] - mean) * product;
    }
  };
  [[nodiscard]] constexpr Made made(std::uint32_t row, Wide<T> scale) const {
    const Wide<T> share = part.scatter[row] / static_cast<Wide<T>>(part.members.size());
    return {part.mean[row], part.scatter[row] * scale, part.gradient_sum[row] * share,
            part.gradient_dot[row] * share * part.scatter[row]};
  }
  [[nodiscard]] constexpr bool by_columns() const { return part.by_columns(); }
  [[nodiscard]] constexpr Made column(std::uint32_t row) const {
    const std::int32_t channel = part.first_channel + static_cast<std::int32_t>(row);
    return made(row, part.affine ? part.of_channel(part.scale, channel) : 1);
  }
};

/// Of one group: sums of gaps to its first element, of their squares, of gradients, of products.
template <class A>
struct NormSums {
  A gap = 0, square = 0, slope = 0, product = 0;

  constexpr NormSums& operator+=(const NormSums& other) {
    gap += other.gap;
    square += other.square;
    slope += other.slope;
    product += other.product;
    return *this;
  }
};

/// Row by row: a plain part whose groups are all of a position's channels, forward, or the gradient
/// of its operand. Mean and scatter are left for the parameters' gradients.
template <class T>
struct NormRows {
  NormPart<T> part;
  T* to = nullptr;  ///< where the part begins, as `part.first` in x and dy
  bool backward = false, adds = false;

  using A = Wide<T>;
  using Sum = NormSums<A>;
  /// What a row's elements share.
  struct Made {
    A mean = 0, scatter = 0, slope = 0, product = 0;
  };
  using Row = typename NormPart<T>::Row;

  [[nodiscard]] constexpr Row begin(std::uint32_t number) const {
    Row row{number, part.first + static_cast<std::int64_t>(number) * part.inner, 0};
    row.pivot = static_cast<A>(part.x.data[row.base]);
    return row;
  }
  [[nodiscard]] constexpr Sum term(const Row& row, std::uint32_t i) const {
    const A gap = static_cast<A>(part.x.data[row.base + i]) - row.pivot;
    const A g = backward ? gradient(row, i) : A{0};
    return {gap, gap * gap, g, g * gap};
  }
  constexpr Made finish(std::uint32_t number, const Sum& sums) const {
    const auto n = static_cast<A>(part.inner);
    const A gap = sums.gap / n;
    const A variance = sums.square / n - gap * gap;
    Made made;
    made.mean = begin(number).pivot + gap;
    made.scatter = A{1} / std::sqrt((variance > 0 ? variance : 0) + A(norm_epsilon));
    made.slope = sums.slope / n;
    made.product = made.scatter * (sums.product - gap * sums.slope) / n;
    part.mean[number] = made.mean;
    part.scatter[number] = made.scatter;
    return made;
  }
  constexpr void write(const Row& row, std::uint32_t i, const Made& made) const {
    const std::int64_t at = row.base + i;
    const A normal = (static_cast<A>(part.x.data[at]) - made.mean) * made.scatter;
    T& target = to[at - part.first];
    if (backward) {
      const A value = (gradient(row, i) - made.slope - normal * made.product) * made.scatter;
      target = static_cast<T>(adds ? static_cast<A>(target) + value : value);
    } else {
      target =
          static_cast<T>(part.affine ? normal * of(part.scale, i) + of(part.shift, i) : normal);
    }
  }

 private:
  [[nodiscard]] constexpr A of(const View<T>& view, std::uint32_t i) const {
    return part.of_channel(view, part.first_channel + static_cast<std::int32_t>(i));
  }
  [[nodiscard]] constexpr A gradient(const Row& row, std::uint32_t i) const {
    const auto g = static_cast<A>(part.dy.data[row.base + i]);
    return part.affine ? g * of(part.scale, i) : g;
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
    if (part.plain && !part.channel_is_group) {  // a member for each channel
      const std::int64_t place =
          part.first + part.offset_in(part.group_walk, i) + part.offset_in(part.member_walk, row);
      const auto gradient = static_cast<Wide<T>>(part.dy.data[place]);
      return {gradient * part.normal(static_cast<Wide<T>>(part.x.data[place]), i), gradient};
    }
    Index start{};
    start.set(part.channel_axis, first + static_cast<std::int32_t>(row));
    const Index at = positions.index(i, start);
    const Wide<T> gradient = part.dy.wide(at);
    return {gradient * part.normal(part.x.wide(at), part.groups.number(at)), gradient};
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
