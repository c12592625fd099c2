// Kernels that pick elements: pooling, reductions, concatenation, slices, reshapes.
#pragma once

#include "hw/math/view.hpp"

namespace parsim::hw {

/// Which operand element an output element is.
struct IndexMap {
  enum class Kind : std::uint8_t {
    shift,
    reshape,
    drop_sample,
    split_heads,
    join_heads
  } kind = Kind::shift;
  int axis = 0;
  std::int32_t step = 1, offset = 0;  ///< shift: operand = output · step + offset along `axis`
  // reshape: whole extents without the sample, for row-major numbers
  std::int32_t out_extent[most_axes] = {1, 1, 1, 1, 1, 1};
  std::int32_t in_extent[most_axes] = {1, 1, 1, 1, 1, 1};
  int in_rank = 0;
  // heads: axes of the side that has them, where all axes before both number the heads
  int tokens = 0, width = 0;

  [[nodiscard]] constexpr Index operator()(const Index& out) const {
    Index in = out;
    if (kind == Kind::split_heads || kind == Kind::join_heads) return heads(out);
    if (kind == Kind::shift) {
      in.set(axis, out.along(axis) * step + offset);
      return in;
    }
    if (kind == Kind::drop_sample) {
      for (int a = 0; a + 1 < most_axes; ++a) in.at[a] = out.at[a + 1];
      in.at[most_axes - 1] = 0;
      return in;
    }
    std::int32_t element = 0;
    for (int a = 1; a < most_axes; ++a) element = element * out_extent[a] + out.at[a];
    for (int a = 1; a < most_axes; ++a) in.at[a] = 0;
    for (int a = most_axes - 1; a >= 1; --a) {
      if (a >= in_rank) continue;
      in.at[a] = element % in_extent[a];
      element /= in_extent[a];
    }
    return in;
  }

  /// Between sample × tokens × channels and sample × heads… × tokens × width.
  [[nodiscard]] constexpr Index heads(const Index& out) const {
    Index in{};
    in.at[0] = out.at[0];
    const int first_not_head = tokens < width ? tokens : width;
    if (kind == Kind::split_heads) {
      std::int32_t head = 0;
      for (int a = 1; a < most_axes; ++a) {
        if (a < first_not_head) head = head * out_extent[a] + out.at[a];
      }
      in.at[1] = out.along(tokens);
      in.at[2] = head * out_extent[width] + out.along(width);
      return in;
    }
    in.set(tokens, out.at[1]);
    in.set(width, out.at[2] % in_extent[width]);
    std::int32_t head = out.at[2] / in_extent[width];
    for (int a = most_axes - 1; a >= 1; --a) {
      if (a >= first_not_head) continue;
      in.at[a] = head % in_extent[a];
      head /= in_extent[a];
    }
    return in;
  }
};

/// y = x at the mapped index, or, backward, dx there += dy. No two outputs share an operand
/// element.
template <class T>
struct Remap {
  Loops loops;
  IndexMap map;
  View<T> in, out;
  bool backward = false;

  constexpr void operator()(std::uint32_t i) const {
    const Index o = loops.index(i);
    if (backward) {
      add_to(in(map(o)), out.wide(o), false);
    } else {
      out(o) = in(map(o));
    }
  }
};

/// A reduction: gradient of a learned tensor, which every sample reads. Rows are its elements.
template <class T>
struct LearnedGradient {
  Loops elements;  ///< over part.out without the sample
  View<T> dy, gradient;
  std::int32_t first_sample = 0;
  bool atomic = false;

  [[nodiscard]] constexpr Sums<Wide<T>> term(std::uint32_t row, std::uint32_t i) const {
    Index at = elements.index(row);
    at.at[0] = first_sample + static_cast<std::int32_t>(i);
    return {dy.wide(at), 0};
  }
  constexpr void finish(std::uint32_t row, Sums<Wide<T>> sums) const {
    IndexMap map;
    map.kind = IndexMap::Kind::drop_sample;
    add_to(gradient(map(elements.index(row))), sums.first, atomic);
  }
};

/// A window along an axis of a pooling layer.
struct PoolWindow {
  std::int32_t kernel = 1, step = 1, pad = 0, pad_end = 0, dilation = 1;
  std::int32_t extent = 1;  ///< of the whole input
  std::int32_t begin = 0;   ///< the part's first output
  std::uint32_t count = 1;  ///< of the part's outputs
  std::int64_t x_stride = 0, y_stride = 0, dx_stride = 0;

  struct Taps {
    std::int32_t begin, end;  ///< those that are not in the padding
  };
  [[nodiscard]] constexpr std::int32_t start(std::int32_t out) const { return out * step - pad; }
  [[nodiscard]] constexpr Taps taps(std::int32_t out) const {
    const std::int32_t at = start(out);
    const std::int32_t first = at >= 0 ? 0 : (dilation - 1 - at) / dilation;
    const std::int32_t fit = extent <= at ? 0 : (extent - at + dilation - 1) / dilation;
    return {first, fit < kernel ? fit : kernel};
  }
  /// What an average counts. With count_padding the window is clipped to the padded input: what
  /// ceil mode lets stick out beyond it does not count (PyTorch's rule).
  [[nodiscard]] constexpr std::int32_t counted(std::int32_t out, bool count_padding) const {
    if (!count_padding) return taps(out).end - taps(out).begin;
    const std::int32_t fit = (extent + pad_end - start(out) + dilation - 1) / dilation;
    return fit < kernel ? fit : kernel;
  }
  [[nodiscard]] constexpr bool overlaps() const { return (kernel - 1) * dilation >= step; }
};

/// A part of a pooling layer as samples × channels × three windows; windows that are not there have
/// one tap. A thread for each output: it writes it, or adds its gradient to the operands it comes
/// from.
template <class T>
struct PoolPart {
  const T* x = nullptr;  ///< where position 0 of the windows would be, of the part's first channel
  T* y = nullptr;        ///< the part's first output, or its gradient
  T* dx = nullptr;       ///< as x; null: forward
  std::uint32_t samples = 1, channels = 1;
  std::int64_t x_sample = 0, x_channel = 0, y_sample = 0, y_channel = 0;  ///< strides
  std::int64_t dx_sample = 0, dx_channel = 0;
  bool channels_last = false;
  bool maximum = true, count_padding = true;
  bool atomic = false;  ///< outputs share operands
  PoolWindow w0, w1, w2;

  constexpr void operator()(std::uint32_t i) const {
    const auto next = [&](std::uint32_t extent) {
      const std::uint32_t rest = i / extent;
      const std::uint32_t here = i - rest * extent;
      i = rest;
      return here;
    };
    std::uint32_t channel = channels_last ? next(channels) : 0;
    const std::uint32_t i2 = w2.count == 1 ? 0 : next(w2.count);
    const std::uint32_t i1 = w1.count == 1 ? 0 : next(w1.count);
    const std::uint32_t i0 = w0.count == 1 ? 0 : next(w0.count);
    if (!channels_last) channel = next(channels);
    const std::uint32_t sample = i;
    const std::int32_t o0 = w0.begin + static_cast<std::int32_t>(i0);
    const std::int32_t o1 = w1.begin + static_cast<std::int32_t>(i1);
    const std::int32_t o2 = w2.begin + static_cast<std::int32_t>(i2);
    const std::int64_t first = sample * x_sample + channel * x_channel +
                               w0.start(o0) * w0.x_stride + w1.start(o1) * w1.x_stride +
                               w2.start(o2) * w2.x_stride;
    const std::int64_t dx_first = sample * dx_sample + channel * dx_channel +
                                  w0.start(o0) * w0.dx_stride + w1.start(o1) * w1.dx_stride +
                                  w2.start(o2) * w2.dx_stride;
    T& out = y[sample * y_sample + channel * y_channel + i0 * w0.y_stride + i1 * w1.y_stride +
               i2 * w2.y_stride];
    const auto each_tap = [&](const auto& visit) {
      const auto [b0, e0] = w0.taps(o0);
      const auto [b1, e1] = w1.taps(o1);
      const auto [b2, e2] = w2.taps(o2);
      for (std::int32_t t0 = b0; t0 < e0; ++t0) {
        for (std::int32_t t1 = b1; t1 < e1; ++t1) {
          for (std::int32_t t2 = b2; t2 < e2; ++t2) {
            visit(t0 * w0.dilation, t1 * w1.dilation, t2 * w2.dilation);
          }
        }
      }
    };
    const auto operand = [&](std::int32_t d0, std::int32_t d1, std::int32_t d2) {
      return static_cast<Wide<T>>(
          x[first + d0 * w0.x_stride + d1 * w1.x_stride + d2 * w2.x_stride]);
    };
    const auto slope = [&](std::int32_t d0, std::int32_t d1, std::int32_t d2) -> T& {
      return dx[dx_first + d0 * w0.dx_stride + d1 * w1.dx_stride + d2 * w2.dx_stride];
    };
    if (maximum) {  // the first of the largest
      std::int32_t where0 = 0;
      std::int32_t where1 = 0;
      std::int32_t where2 = 0;
      Wide<T> most = 0;
      bool any = false;
      each_tap([&](std::int32_t d0, std::int32_t d1, std::int32_t d2) {
        const Wide<T> value = operand(d0, d1, d2);
        if (any && !(value > most)) return;
        any = true;
        most = value;
        where0 = d0;
        where1 = d1;
        where2 = d2;
      });
      if (dx == nullptr) {
        out = static_cast<T>(most);
      } else {
        add_to(slope(where0, where1, where2), static_cast<Wide<T>>(out), atomic);
      }
      return;
    }
    const auto divisor =
        static_cast<Wide<T>>(w0.counted(o0, count_padding) * w1.counted(o1, count_padding) *
                             w2.counted(o2, count_padding));
    if (dx == nullptr) {
      Wide<T> sum = 0;
      each_tap([&](auto... d) { sum += operand(d...); });
      out = static_cast<T>(sum / divisor);
    } else {
      const Wide<T> share = static_cast<Wide<T>>(out) / divisor;
      each_tap([&](auto... d) { add_to(slope(d...), share, atomic); });
    }
  }
};

enum class Fold : std::uint8_t { mean, sum, max };
/// Mean, sum or maximum over axes; a thread for each output element. Backward if `dx` has data.
template <class T>
struct FoldAxes {
  Loops loops;               ///< over the output
  Loops folded;              ///< over the reduced axes of the input
  int kept[most_axes] = {};  ///< input axis of every output axis
  int out_rank = 1;
  View<T> x, y, dx;
  Fold fold = Fold::mean;

  constexpr void operator()(std::uint32_t i) const {
    const Index o = loops.index(i);
    Index start{};
    for (int a = 0; a < most_axes; ++a) {
      if (a < out_rank && kept[a] >= 0) start.set(kept[a], o.at[a]);
    }
    const std::uint32_t count = folded.size();
    const Wide<T> factor =
        fold == Fold::mean ? Wide<T>{1} / static_cast<Wide<T>>(count) : Wide<T>{1};
    std::uint32_t best = 0;
    Wide<T> sum = 0;
    if (dx.data == nullptr || fold == Fold::max) {
      for (std::uint32_t c = 0; c < count; ++c) {
        const Wide<T> value = x.wide(folded.index(c, start));
        if (fold != Fold::max) {
          sum += factor * value;
        } else if (c == 0 || value > sum) {
          sum = value;
          best = c;
        }
      }
    }
    if (dx.data == nullptr) {
      y(o) = static_cast<T>(sum);
    } else if (fold == Fold::max) {
      add_to(dx(folded.index(best, start)), y.wide(o), false);
    } else {
      for (std::uint32_t c = 0; c < count; ++c) {
        add_to(dx(folded.index(c, start)), factor * y.wide(o), false);
      }
    }
  }
};

}  // namespace parsim::hw
