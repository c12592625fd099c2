// Convolutions and dense layers, one thread per element of the result: what runs where no library
// takes the shape, and on the host. Formulas: core/layers.hpp.
#pragma once

#include "hw/math/pointwise.hpp"
#include "hw/math/view.hpp"

namespace parsim::hw {

/// A part of a convolution; `spatial` windows, over axes 2, 3, ….
template <class T>
struct ConvPart {
  View<T> x, w, bias, y;  ///< y: output, or its gradient in the backward passes
  Box out, in;            ///< what the part computes, and what it reads
  int spatial = 2;
  std::int32_t kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, pad[3] = {}, dilation[3] = {1, 1, 1};
  std::int32_t channels = 0;                ///< of one group
  std::int32_t filters = 0;                 ///< of one group
  std::int32_t sum_begin = 0, sum_end = 0;  ///< channels within a group that are summed
  bool add_bias = false;

  [[nodiscard]] constexpr std::int32_t taps() const {
    std::int32_t product = 1;
    for (int s = 0; s < spatial; ++s) product *= kernel[s];
    return product;
  }
};

template <class T>
struct ConvForward {
  Loops loops;  ///< over part.out
  ConvPart<T> part;
  bool add = false;  ///< partial sums are added

  constexpr void operator()(std::uint32_t i) const {
    const Index o = loops.index(i);
    Wide<T> sum = 0;
    const std::int32_t taps = part.taps();
    for (std::int32_t t = 0; t < taps; ++t) {
      Index in = o;
      Index weight{};
      weight.at[0] = o.at[1];
      std::int32_t rest = t;
      bool inside = true;
      for (int s = part.spatial - 1; s >= 0; --s) {
        const std::int32_t tap = rest % part.kernel[s];
        rest /= part.kernel[s];
        weight.at[s + 2] = tap;
        in.at[s + 2] = o.at[s + 2] * part.stride[s] - part.pad[s] + tap * part.dilation[s];
        inside =
            inside && in.at[s + 2] >= part.in.begin[s + 2] && in.at[s + 2] < part.in.end[s + 2];
      }
      if (!inside) continue;
      const std::int32_t first = o.at[1] / part.filters * part.channels;
      for (std::int32_t c = part.sum_begin; c < part.sum_end; ++c) {
        in.at[1] = first + c;
        weight.at[1] = c;
        sum += part.x.wide(in) * part.w.wide(weight);
      }
    }
    if (part.add_bias) sum += part.bias.wide(Index{{o.at[1]}});
    if (add) sum += part.y.wide(o);
    part.y(o) = static_cast<T>(sum);
  }
};

/// Gradient of the input: per input element, over the filters and taps that read it.
template <class T>
struct ConvData {
  Loops loops;  ///< over part.in
  ConvPart<T> part;
  View<T> dx;

  constexpr void operator()(std::uint32_t i) const {
    const Index in = loops.index(i);
    const std::int32_t group = in.at[1] / part.channels;
    const std::int32_t c = in.at[1] % part.channels;
    if (c < part.sum_begin || c >= part.sum_end) return;
    std::int32_t first = group * part.filters;
    std::int32_t last = first + part.filters;
    if (first < part.out.begin[1]) first = part.out.begin[1];
    if (last > part.out.end[1]) last = part.out.end[1];
    Wide<T> sum = 0;
    const std::int32_t taps = part.taps();
    for (std::int32_t t = 0; t < taps; ++t) {
      Index o = in;
      Index weight{};
      weight.at[1] = c;
      std::int32_t rest = t;
      bool inside = true;
      for (int s = part.spatial - 1; s >= 0; --s) {
        const std::int32_t tap = rest % part.kernel[s];
        rest /= part.kernel[s];
        weight.at[s + 2] = tap;
        const std::int32_t position = in.at[s + 2] + part.pad[s] - tap * part.dilation[s];
        inside = inside && position >= 0 && position % part.stride[s] == 0;
        o.at[s + 2] = position / part.stride[s];
        inside =
            inside && o.at[s + 2] >= part.out.begin[s + 2] && o.at[s + 2] < part.out.end[s + 2];
      }
      if (!inside) continue;
      for (std::int32_t f = first; f < last; ++f) {
        o.at[1] = f;
        weight.at[0] = f;
        sum += part.y.wide(o) * part.w.wide(weight);
      }
    }
    add_to(dx(in), sum, false);
  }
};

/// Gradient of the weights: per weight, over the output positions of its filter.
template <class T>
struct ConvWeights {
  Loops loops;      ///< over the weights' box
  Loops positions;  ///< over part.out without the channel axis
  ConvPart<T> part;
  View<T> dw;
  bool atomic = false;

  constexpr void operator()(std::uint32_t i) const {
    const Index weight = loops.index(i);
    Index start{};
    start.at[1] = weight.at[0];
    const std::int32_t channel = weight.at[0] / part.filters * part.channels + weight.at[1];
    Wide<T> sum = 0;
    const std::uint32_t count = positions.size();
    for (std::uint32_t p = 0; p < count; ++p) {
      const Index o = positions.index(p, start);
      Index in = o;
      in.at[1] = channel;
      bool inside = true;
      for (int s = 0; s < part.spatial; ++s) {
        const std::int32_t at =
            o.at[s + 2] * part.stride[s] - part.pad[s] + weight.at[s + 2] * part.dilation[s];
        inside = inside && at >= part.in.begin[s + 2] && at < part.in.end[s + 2];
        in.at[s + 2] = at;
      }
      if (inside) sum += part.y.wide(o) * part.x.wide(in);
    }
    add_to(dw(weight), sum, atomic);
  }
};

/// A part of a dense layer: the channel is axis `last`.
template <class T>
struct DensePart {
  View<T> x, w, bias, y;
  Box out;
  int last = 1;
  std::int32_t sum_begin = 0, sum_end = 0;
  bool add_bias = false;
  bool experts = false;  ///< axis 1 numbers experts, which have weights of their own

  /// Of the weights: what input channel c adds to an output. Its first axes are the bias's.
  [[nodiscard]] constexpr Index weight_at(const Index& o, std::int32_t c = 0) const {
    const std::int32_t unit = o.along(last);
    return experts ? Index{{o.at[1], unit, c}} : Index{{unit, c}};
  }
};

template <class T>
struct DenseForward {
  Loops loops;
  DensePart<T> part;
  bool add = false;

  constexpr void operator()(std::uint32_t i) const {
    const Index o = loops.index(i);
    Wide<T> sum = part.add_bias ? part.bias.wide(part.weight_at(o)) : Wide<T>{0};
    Index in = o;
    for (std::int32_t c = part.sum_begin; c < part.sum_end; ++c) {
      in.at[part.last] = c;
      sum += part.x.wide(in) * part.w.wide(part.weight_at(o, c));
    }
    if (add) sum += part.y.wide(o);
    part.y(o) = static_cast<T>(sum);
  }
};

template <class T>
struct DenseData {
  Loops loops;  ///< over what the part reads
  DensePart<T> part;
  View<T> dx;

  constexpr void operator()(std::uint32_t i) const {
    const Index in = loops.index(i);
    Index o = in;
    Wide<T> sum = 0;
    for (std::int32_t f = part.out.begin[part.last]; f < part.out.end[part.last]; ++f) {
      o.at[part.last] = f;
      sum += part.y.wide(o) * part.w.wide(part.weight_at(o, in.at[part.last]));
    }
    add_to(dx(in), sum, false);
  }
};

template <class T>
struct DenseWeights {
  Loops loops;      ///< over the weights' box
  Loops positions;  ///< over part.out without the channel axis, and without that of experts
  DensePart<T> part;
  View<T> dw;
  bool atomic = false;

  constexpr void operator()(std::uint32_t i) const {
    const Index weight = loops.index(i);
    Index out_start{};
    Index in_start{};
    if (part.experts) out_start.at[1] = in_start.at[1] = weight.at[0];
    out_start.at[part.last] = weight.at[part.experts ? 1 : 0];
    in_start.at[part.last] = weight.at[part.experts ? 2 : 1];
    Wide<T> sum = 0;
    const std::uint32_t count = positions.size();
    for (std::uint32_t p = 0; p < count; ++p) {
      sum += part.y.wide(positions.index(p, out_start)) * part.x.wide(positions.index(p, in_start));
    }
    add_to(dw(weight), sum, atomic);
  }
};

/// A part of a product of two activations over their last two axes; leading axes are broadcast.
template <class T>
struct MatMulPart {
  View<T> left, right, y;
  Broadcast left_at, right_at;
  Box out;
  int rows = 1, columns = 2;  ///< axes of y; of left: rows and inner, of right: inner and columns
  std::int32_t inner = 0;

  /// Of the left operand: the k-th of what makes an output's element; of the right one, too.
  [[nodiscard]] constexpr Index in_left(const Index& o, std::int32_t k) const {
    Index at = left_at(o);
    at.set(columns - left_at.missing, k);
    return at;
  }
  [[nodiscard]] constexpr Index in_right(const Index& o, std::int32_t k) const {
    Index at = right_at(o);
    at.set(rows - right_at.missing, k);
    return at;
  }
};

template <class T>
struct MatMulForward {
  Loops loops;
  MatMulPart<T> part;

  constexpr void operator()(std::uint32_t i) const {
    const Index o = loops.index(i);
    Wide<T> sum = 0;
    for (std::int32_t k = 0; k < part.inner; ++k) {
      sum += part.left.wide(part.in_left(o, k)) * part.right.wide(part.in_right(o, k));
    }
    part.y(o) = static_cast<T>(sum);
  }
};

/// Gradient of the left operand (per element, over the columns) or of the right one (over the
/// rows), and over what it is broadcast to.
template <class T>
struct MatMulBackward {
  Loops loops;   ///< over the operand's box, with the axes of the output; its last two at their end
  Loops copies;  ///< over the output axes along which the operand is one for all
  MatMulPart<T> part;
  View<T> d;
  bool left = true;

  constexpr void operator()(std::uint32_t i) const {
    const Index at = loops.index(i);
    const std::int32_t k = at.along(left ? part.columns : part.rows);
    const int summed = left ? part.columns : part.rows;
    std::int32_t begin = 0;
    std::int32_t end = 0;
    for (int a = 0; a < most_axes; ++a) {
      if (a != summed) continue;
      begin = part.out.begin[a];
      end = part.out.end[a];
    }
    Wide<T> sum = 0;
    const std::uint32_t count = copies.size();
    for (std::uint32_t c = 0; c < count; ++c) {
      Index o = copies.index(c, at);
      for (std::int32_t s = begin; s < end; ++s) {
        o.set(summed, s);
        sum += part.y.wide(o) *
               (left ? part.right.wide(part.in_right(o, k)) : part.left.wide(part.in_left(o, k)));
      }
    }
    add_to(d(left ? part.in_left(at, k) : part.in_right(at, k)), sum, false);
  }
};

/// A reduction: sum of the output's gradient over everything but the channel. Rows are channels.
template <class T>
struct BiasGradient {
  Walk<1> positions;        ///< over part.out without the channel axis
  const T* dy = nullptr;    ///< the part's first element
  std::int64_t stride = 0;  ///< from channel to channel
  View<T> db;
  std::int32_t first = 0;  ///< channel of row 0
  bool atomic = false;

  [[nodiscard]] constexpr Sums<Wide<T>> term(std::uint32_t row, std::uint32_t i) const {
    std::int64_t offset[1] = {};
    positions.at(i, offset);
    return {static_cast<Wide<T>>(dy[offset[0] + stride * row]), 0};
  }
  constexpr void finish(std::uint32_t row, Sums<Wide<T>> sums) const {
    add_to(db(Index{{first + static_cast<std::int32_t>(row)}}), sums.first, atomic);
  }
};

/// Of an output and its operand, which lie alike without gaps: adds the channel's bias.
template <class T>
struct AddBias {
  const T* bias = nullptr;
  std::uint32_t inner = 1, channels = 1;  ///< elements from one channel to the next; channels

  constexpr Wide<T> operator()(std::uint32_t i, const Wide<T> (&v)[1]) const {
    return v[0] + static_cast<Wide<T>>(bias[(inner == 1 ? i : i / inner) % channels]);
  }
};

}  // namespace parsim::hw
