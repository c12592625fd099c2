// Kernels that touch each element once or a few times: copies, additions, activations,
// combinations, the optimizer.
#pragma once

#include <cmath>

#include "hw/math/numbers.hpp"
#include "hw/math/view.hpp"

namespace parsim::hw {

/// Offsets of N views while walking over a box; axes that lie behind each other in all views are
/// one loop, so that dense tensors cost no divisions.
template <int N>
struct Walk {
  int rank = 0;
  std::uint32_t extent[most_axes] = {};
  std::int64_t stride[N][most_axes] = {};

  [[nodiscard]] constexpr std::uint32_t size() const {
    std::uint32_t product = 1;
    for (int a = 0; a < rank; ++a) product *= extent[a];
    return product;
  }
  /// All views lie alike and without gaps.
  [[nodiscard]] constexpr bool is_packed() const {
    bool packed = rank <= 1;
    for (int n = 0; n < N; ++n) packed = packed && (rank == 0 || stride[n][0] == 1);
    return packed;
  }
  constexpr void at(std::uint32_t i, std::int64_t (&offset)[N]) const {
    if (rank <= 1) {
      for (int n = 0; n < N; ++n) offset[n] = rank == 0 ? 0 : stride[n][0] * i;
      return;
    }
    for (int n = 0; n < N; ++n) offset[n] = 0;
    for (int a = rank - 1; a >= 0; --a) {
      const std::uint32_t next = a == 0 ? 0 : i / extent[a];
      const std::uint32_t here = i - next * extent[a];
      for (int n = 0; n < N; ++n) offset[n] += stride[n][a] * static_cast<std::int64_t>(here);
      i = next;
    }
  }
};

/// Element i of N tensors makes element i of another, where all lie alike and without gaps:
/// to = f(i, from), or to += f(i, from). An engine may take several elements at once.
template <class T, int N, class F>
struct Packed {
  T* to = nullptr;
  const T* from[N] = {};
  bool adds = false;
  F f{};

  constexpr void operator()(std::uint32_t i) const {
    Wide<T> v[N] = {};
    for (int n = 0; n < N; ++n) v[n] = static_cast<Wide<T>>(from[n][i]);
    const Wide<T> value = f(i, v);
    if (adds) {
      add_to(to[i], value, false);
    } else {
      to[i] = static_cast<T>(value);
    }
  }
};

struct Same {
  template <class A>
  constexpr A operator()(std::uint32_t, const A (&v)[1]) const {
    return v[0];
  }
};

enum class Move : std::uint8_t { copy, add, atomic_add };
/// to = from, or to += from. The pointers stand at the first element of the walk.
template <class T>
struct Copy {
  Walk<2> walk;
  T* to = nullptr;
  const T* from = nullptr;
  Move move = Move::copy;

  constexpr void operator()(std::uint32_t i) const {
    std::int64_t offset[2] = {};
    walk.at(i, offset);
    const T value = from[offset[1]];
    if (move == Move::copy) {
      to[offset[0]] = value;
    } else {
      add_to(to[offset[0]], static_cast<Wide<T>>(value), move == Move::atomic_add);
    }
  }
};

/// The same, `width` neighbours at once: extents, strides and pointers are of lanes.
template <class T, int width>
struct CopyLanes {
  Walk<2> walk;
  Lanes<T, width>* to = nullptr;
  const Lanes<T, width>* from = nullptr;
  bool adds = false;

  constexpr void operator()(std::uint32_t i) const {
    std::int64_t offset[2] = {};
    walk.at(i, offset);
    Lanes<T, width> value = from[offset[1]];
    if (adds) {
      for (int k = 0; k < width; ++k) {
        value.at[k] = static_cast<T>(static_cast<Wide<T>>(to[offset[0]].at[k]) +
                                     static_cast<Wide<T>>(value.at[k]));
      }
    }
    to[offset[0]] = value;
  }
};

/// Whether innermost elements lie side by side in groups of `width`, and lines a multiple apart.
template <int N>
[[nodiscard]] constexpr bool has_lanes(const Walk<N>& walk, std::uint32_t width) {
  if (walk.rank == 0 || walk.extent[walk.rank - 1] % width != 0) return false;
  for (int n = 0; n < N; ++n) {
    if (walk.stride[n][walk.rank - 1] != 1) return false;
    for (int a = 0; a + 1 < walk.rank; ++a) {
      if (walk.stride[n][a] % width != 0) return false;
    }
  }
  return true;
}

/// Of a copy that has lanes and sums nothing atomically.
template <int width, class T>
[[nodiscard]] CopyLanes<T, width> in_lanes(const Copy<T>& copy) {
  CopyLanes<T, width> result{copy.walk, reinterpret_cast<Lanes<T, width>*>(copy.to),
                             reinterpret_cast<const Lanes<T, width>*>(copy.from),
                             copy.move == Move::add};
  Walk<2>& walk = result.walk;
  walk.extent[walk.rank - 1] /= width;
  for (auto& strides : walk.stride) {
    for (int a = 0; a + 1 < walk.rank; ++a) strides[a] /= width;
  }
  return result;
}

template <class T>
struct Zero {
  Walk<1> walk;
  T* to = nullptr;

  constexpr void operator()(std::uint32_t i) const {
    std::int64_t offset[1] = {};
    walk.at(i, offset);
    to[offset[0]] = static_cast<T>(Wide<T>{0});
  }
};

/// Devices that one shard kernel can serve.
inline constexpr int most_members = 16;
/// Sums the same box of `sources` buffers and writes the sum to, or adds it to, `targets` buffers:
/// a member's share of an all-reduce or of a reduce-scatter.
template <class T>
struct ShardSum {
  Walk<2> walk;  ///< over a source and a target; all sources lie alike, and all targets
  std::uint32_t first = 0;
  int sources = 0, targets = 0;
  const T* from[most_members] = {};
  T* to[most_members] = {};
  bool add = false;

  constexpr void operator()(std::uint32_t i) const {
    std::int64_t offset[2] = {};
    walk.at(first + i, offset);
    Wide<T> sum = 0;
    for (int m = 0; m < sources; ++m) sum += static_cast<Wide<T>>(from[m][offset[0]]);
    for (int m = 0; m < targets; ++m) {
      if (add) {
        add_to(to[m][offset[1]], sum, false);
      } else {
        to[m][offset[1]] = static_cast<T>(sum);
      }
    }
  }
};

/// The same where stores differ in shape: a halo on one device, none on another.
template <class T>
struct ShardSumAny {
  Loops loops;
  std::uint32_t first = 0;
  int sources = 0, targets = 0;
  View<T> from[most_members], to[most_members];
  bool add = false;

  constexpr void operator()(std::uint32_t i) const {
    const Index at = loops.index(first + i);
    Wide<T> sum = 0;
    for (int m = 0; m < sources; ++m) sum += from[m].wide(at);
    for (int m = 0; m < targets; ++m) {
      if (add) {
        add_to(to[m](at), sum, false);
      } else {
        to[m](at) = static_cast<T>(sum);
      }
    }
  }
};

enum class Curve : std::uint8_t {
  relu,
  leakyrelu,
  clip,
  sigmoid,
  tanh,
  silu,
  gelu,
  hardswish,
  prelu,
};

/// Value (first) and slope (second) of an element-wise function.
template <class A>
[[nodiscard]] constexpr Sums<A> curve(Curve function, A x, A learned) {
  const A one = 1;
  switch (function) {
    case Curve::relu:
      return x > 0 ? Sums<A>{x, one} : Sums<A>{};
    case Curve::leakyrelu:
      return x > 0 ? Sums<A>{x, one} : Sums<A>{A(0.01) * x, A(0.01)};
    case Curve::prelu:
      return x > 0 ? Sums<A>{x, one} : Sums<A>{learned * x, learned};
    case Curve::clip:
      if (x > 0 && x < 6) return {x, one};
      return {x <= 0 ? A(0) : A(6), 0};
    case Curve::sigmoid: {
      const A s = one / (one + std::exp(-x));
      return {s, s * (one - s)};
    }
    case Curve::tanh: {
      const A t = std::tanh(x);
      return {t, one - t * t};
    }
    case Curve::silu: {
      const A s = one / (one + std::exp(-x));
      return {x * s, s * (one + x * (one - s))};
    }
    case Curve::gelu: {
      const A half = (one + std::erf(x * A(0.70710678118654752440))) / 2;
      const A bell = std::exp(-x * x / 2) * A(0.39894228040143267794);  // 1/sqrt(2 pi)
      return {x * half, half + x * bell};
    }
    case Curve::hardswish:
      if (x <= -3) return {};
      if (x >= 3) return {x, one};
      return {x * (x + 3) / 6, (2 * x + 3) / 6};
  }
  return {};
}

struct CurveValue {
  Curve function = Curve::relu;
  template <class A>
  constexpr A operator()(std::uint32_t, const A (&v)[1]) const {
    return curve(function, v[0], A{}).first;
  }
};
/// Of the operand and the output's gradient.
struct CurveSlope {
  Curve function = Curve::relu;
  template <class A>
  constexpr A operator()(std::uint32_t, const A (&v)[2]) const {
    return curve(function, v[0], A{}).second * v[1];
  }
};

template <class T>
struct ActivationForward {
  Walk<2> walk;
  T* y = nullptr;
  const T* x = nullptr;
  Curve function = Curve::relu;

  constexpr void operator()(std::uint32_t i) const {
    std::int64_t offset[2] = {};
    walk.at(i, offset);
    y[offset[0]] = static_cast<T>(curve(function, static_cast<Wide<T>>(x[offset[1]]), {}).first);
  }
};

template <class T>
struct ActivationBackward {
  Walk<3> walk;
  T* dx = nullptr;
  const T* x = nullptr;
  const T* dy = nullptr;
  Curve function = Curve::relu;

  constexpr void operator()(std::uint32_t i) const {
    std::int64_t offset[3] = {};
    walk.at(i, offset);
    const Wide<T> slope = curve(function, static_cast<Wide<T>>(x[offset[1]]), {}).second;
    add_to(dx[offset[0]], slope * static_cast<Wide<T>>(dy[offset[2]]), false);
  }
};

/// PRelu forward (dy null) or the gradient of its input; one learned slope, or one per channel.
template <class T>
struct Prelu {
  Loops loops;
  View<T> x, slope, y, dx;
  bool per_channel = false, backward = false;

  constexpr void operator()(std::uint32_t i) const {
    const Index at = loops.index(i);
    const Wide<T> learned = slope.wide(Index{{per_channel ? at.at[1] : 0}});
    const Sums<Wide<T>> both = curve(Curve::prelu, x.wide(at), learned);
    if (backward) {
      add_to(dx(at), both.second * y.wide(at), false);
    } else {
      y(at) = static_cast<T>(both.first);
    }
  }
};

/// A reduction: gradient of PRelu's slopes. Rows are channels, or there is one row.
template <class T>
struct PreluSlope {
  Loops positions;
  View<T> x, dy, slope_gradient;
  bool per_channel = false, atomic = false;
  std::int32_t first = 0;

  [[nodiscard]] constexpr Sums<Wide<T>> term(std::uint32_t row, std::uint32_t i) const {
    Index start{};
    if (per_channel) start.at[1] = first + static_cast<std::int32_t>(row);
    const Index at = positions.index(i, start);
    const Wide<T> value = x.wide(at);
    return {value > 0 ? Wide<T>{0} : value * dy.wide(at), 0};
  }
  constexpr void finish(std::uint32_t row, Sums<Wide<T>> sums) const {
    add_to(slope_gradient(Index{{per_channel ? first + static_cast<std::int32_t>(row) : 0}}),
           sums.first, atomic);
  }
};

enum class Merge : std::uint8_t { add, sub, mul, div, max, min };
inline constexpr int most_operands = 4;

/// Value of a combination. (Loops over a constant number of operands: their values are registers.)
template <class A>
[[nodiscard]] constexpr A merged(Merge merge, const A (&v)[most_operands], int count) {
  A value = v[0];
  for (int k = 1; k < most_operands; ++k) {
    if (k >= count) continue;
    switch (merge) {
      case Merge::add:
        value += v[k];
        break;
      case Merge::sub:
        value -= v[k];
        break;
      case Merge::mul:
        value *= v[k];
        break;
      case Merge::div:
        value /= v[k];
        break;
      case Merge::max:
        value = v[k] > value ? v[k] : value;
        break;
      case Merge::min:
        value = v[k] < value ? v[k] : value;
        break;
    }
  }
  return value;
}

/// Slope of a combination in operand k; of equal extremes the first counts.
template <class A>
[[nodiscard]] constexpr A merged_slope(Merge merge, const A (&v)[most_operands], int count, int k) {
  switch (merge) {
    case Merge::add:
      return 1;
    case Merge::sub:
      return k == 0 ? A(1) : A(-1);
    case Merge::mul: {
      A product = 1;
      for (int o = 0; o < most_operands; ++o) product *= o == k || o >= count ? A(1) : v[o];
      return product;
    }
    case Merge::div:
      return k == 0 ? A(1) / v[1] : -v[0] / (v[1] * v[1]);
    default: {
      const A extreme = merged(merge, v, count);
      A slope = 0;
      for (int o = most_operands - 1; o >= 0; --o) {
        if (o < count && v[o] == extreme) slope = o == k ? A(1) : A(0);
      }
      return slope;
    }
  }
}

struct MergeValue {
  Merge merge = Merge::add;
  template <class A>
  constexpr A operator()(std::uint32_t, const A (&v)[2]) const {
    return merged(merge, {v[0], v[1], A{}, A{}}, 2);
  }
};
/// Of the operands and the output's gradient.
struct MergeSlope {
  Merge merge = Merge::add;
  int k = 0;
  template <class A>
  constexpr A operator()(std::uint32_t, const A (&v)[3]) const {
    return merged_slope(merge, {v[0], v[1], A{}, A{}}, 2, k) * v[2];
  }
};
struct Scaled {
  double factor = 1;
  template <class A>
  constexpr A operator()(std::uint32_t, const A (&v)[1]) const {
    return static_cast<A>(factor) * v[0];
  }
};

/// A combination: the value, or the gradient of an operand that has the output's shape. Operands
/// that are broadcast have strides of 0.
template <class T>
struct MergeElements {
  Walk<most_operands + 2> walk;  ///< output or gradient of operand k, output's gradient, operands
  T* to = nullptr;
  const T* dy = nullptr;  ///< null: the value
  const T* x[most_operands] = {};
  Merge merge = Merge::add;
  int count = 0, k = 0;

  constexpr void operator()(std::uint32_t i) const {
    std::int64_t offset[most_operands + 2] = {};
    walk.at(i, offset);
    if (dy == nullptr) {
      Wide<T> v[most_operands] = {};
      values(offset, v);
      to[offset[0]] = static_cast<T>(merged(merge, v, count));
    } else {
      add_to(to[offset[0]], gradient(offset), false);
    }
  }
  [[nodiscard]] constexpr Wide<T> gradient(const std::int64_t (&offset)[most_operands + 2]) const {
    Wide<T> v[most_operands] = {};
    if (merge != Merge::add && merge != Merge::sub) values(offset, v);
    return static_cast<Wide<T>>(dy[offset[1]]) * merged_slope(merge, v, count, k);
  }

 private:
  constexpr void values(const std::int64_t (&offset)[most_operands + 2],
                        Wide<T> (&v)[most_operands]) const {
    for (int o = 0; o < most_operands; ++o) {
      if (o < count) v[o] = static_cast<Wide<T>>(x[o][offset[o + 2]]);
    }
  }
};

/// An operand that is broadcast, by the number of an element of the output, which lies packed.
template <class T>
struct BroadcastOperand {
  Walk<1> walk;
  const T* from = nullptr;

  [[nodiscard]] constexpr Wide<T> operator()(std::uint32_t i) const {
    std::int64_t offset[1] = {};
    walk.at(i, offset);
    return static_cast<Wide<T>>(from[offset[0]]);
  }
};
/// Two operands, of which number `broadcast` is broadcast: the value from the other one, or the
/// slope in the other one from it and the output's gradient.
template <class T>
struct MergeBroadcast {
  BroadcastOperand<T> operand;
  Merge merge = Merge::add;
  int broadcast = 1;

  template <class A>
  constexpr A operator()(std::uint32_t i, const A (&v)[1]) const {
    const A other = operand(i);
    return merged(merge, {broadcast == 0 ? other : v[0], broadcast == 0 ? v[0] : other, A{}, A{}},
                  2);
  }
  template <class A>
  constexpr A operator()(std::uint32_t i, const A (&v)[2]) const {
    const A other = operand(i);
    const A slope = merged_slope(
        merge, {broadcast == 0 ? other : v[0], broadcast == 0 ? v[0] : other, A{}, A{}}, 2,
        1 - broadcast);
    return slope * v[1];
  }
};

/// A reduction: the gradient of an operand that is broadcast. Rows are the operand's elements,
/// terms the output's elements that read one.
template <class T>
struct MergeSum {
  MergeElements<T> each;  ///< offsets of rows; `to` is the operand's gradient
  Walk<most_operands + 2> terms;
  bool terms_adjacent = false;

  struct Row {
    std::int64_t offset[most_operands + 2] = {};
  };
  [[nodiscard]] constexpr Row begin(std::uint32_t number) const {
    Row row;
    each.walk.at(number, row.offset);
    return row;
  }
  [[nodiscard]] constexpr Sums<Wide<T>> term(const Row& row, std::uint32_t i) const {
    std::int64_t offset[most_operands + 2] = {};
    terms.at(i, offset);
    for (int n = 0; n < most_operands + 2; ++n) offset[n] += row.offset[n];
    return {each.gradient(offset), 0};
  }
  constexpr void finish(std::uint32_t number, Sums<Wide<T>> sums) const {
    add_to(each.to[begin(number).offset[0]], sums.first, false);
  }
};

enum class Rule : std::uint8_t { sgd, momentum, adam };
/// The optimizer's step. `master` keeps the weight in full precision where T is shorter.
template <class T>
struct Step {
  Walk<2> walk;  ///< weights, gradients; state and master lie like the weights
  T* weight = nullptr;
  const T* gradient = nullptr;
  Wide<T>* master = nullptr;  ///< null: the weight itself
  Wide<T>* first = nullptr;   ///< momentum; Adam's mean
  Wide<T>* second = nullptr;  ///< Adam's variance
  Rule rule = Rule::sgd;
  Wide<T> rate = Wide<T>(learning_rate);

  constexpr void operator()(std::uint32_t i) const {
    std::int64_t offset[2] = {};
    walk.at(i, offset);
    const std::int64_t w = offset[0];
    const auto g = static_cast<Wide<T>>(gradient[offset[1]]);
    Wide<T> step = g;
    if (rule == Rule::momentum) {
      step = first[w] = Wide<T>(0.9) * first[w] + g;
    } else if (rule == Rule::adam) {
      // Kingma & Ba 2015, algorithm 1 with its default rates, without the correction of the bias.
      first[w] = Wide<T>(0.9) * first[w] + Wide<T>(0.1) * g;
      second[w] = Wide<T>(0.999) * second[w] + Wide<T>(0.001) * g * g;
      step = first[w] / (std::sqrt(second[w]) + Wide<T>(adam_epsilon));
    }
    const Wide<T> value =
        (master != nullptr ? master[w] : static_cast<Wide<T>>(weight[w])) - rate * step;
    if (master != nullptr) master[w] = value;
    weight[w] = static_cast<T>(value);
  }
};

}  // namespace parsim::hw
