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
  std::int64_t x_stride = 0, y_stride = 0;

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
};

/// A part of a pooling layer as samples × channels × three windows; windows that are not there have
/// one tap. A thread for the output of `width` neighbouring channels. Channels, and the strides of
/// all else, count in units of `width` elements.
template <class T, int width>
struct PoolPart {
  using Vector = Lanes<T, width>;
  using Taken = Lanes<std::uint16_t, width>;
  const Vector* x = nullptr;  ///< position 0 of the windows would be there, of the first channel
  Vector* y = nullptr;        ///< the part's first output, or its gradient
  Taken* taken = nullptr;     ///< by output: the tap that is the maximum; instead of writing to y
  std::uint32_t channels = 1;
  std::int64_t x_sample = 0, x_channel = 0, y_sample = 0, y_channel = 0;  ///< strides
  bool channels_last = false;
  bool maximum = true, count_padding = true;
  PoolWindow w0, w1, w2;

  /// Which sample and channel, and how far along each window's axis.
  struct Place {
    std::uint32_t sample = 0, channel = 0, i0 = 0, i1 = 0, i2 = 0;
  };
  /// Of the i-th element of a box with these extents.
  [[nodiscard]] constexpr Place place(std::uint32_t i, std::uint32_t n0, std::uint32_t n1,
                                      std::uint32_t n2) const {
    const auto next = [&](std::uint32_t extent) {
      if (extent == 1) return std::uint32_t{0};
      const std::uint32_t rest = i / extent;
      const std::uint32_t here = i - rest * extent;
      i = rest;
      return here;
    };
    Place at;
    if (channels_last) at.channel = next(channels);
    at.i2 = next(n2);
    at.i1 = next(n1);
    at.i0 = next(n0);
    if (!channels_last) at.channel = next(channels);
    at.sample = i;
    return at;
  }
  /// The inverse, for the part's outputs.
  [[nodiscard]] constexpr std::uint32_t number(const Place& at) const {
    const std::uint32_t line = channels_last ? at.sample : at.sample * channels + at.channel;
    const std::uint32_t n = ((line * w0.count + at.i0) * w1.count + at.i1) * w2.count + at.i2;
    return channels_last ? n * channels + at.channel : n;
  }
  [[nodiscard]] constexpr Vector& output(const Place& at) const {
    return y[at.sample * y_sample + at.channel * y_channel + at.i0 * w0.y_stride +
             at.i1 * w1.y_stride + at.i2 * w2.y_stride];
  }
  /// What the average of an output divides by.
  [[nodiscard]] constexpr Wide<T> divisor(std::int32_t o0, std::int32_t o1, std::int32_t o2) const {
    return static_cast<Wide<T>>(w0.counted(o0, count_padding) * w1.counted(o1, count_padding) *
                                w2.counted(o2, count_padding));
  }
  [[nodiscard]] constexpr std::int32_t tap(std::int32_t t0, std::int32_t t1,
                                           std::int32_t t2) const {
    return (t0 * w1.kernel + t1) * w2.kernel + t2;
  }

  constexpr void operator()(std::uint32_t i) const {
    const Place at = place(i, w0.count, w1.count, w2.count);
    const std::int32_t o0 = w0.begin + static_cast<std::int32_t>(at.i0);
    const std::int32_t o1 = w1.begin + static_cast<std::int32_t>(at.i1);
    const std::int32_t o2 = w2.begin + static_cast<std::int32_t>(at.i2);
    const std::int64_t first = at.sample * x_sample + at.channel * x_channel +
                               w0.start(o0) * w0.x_stride + w1.start(o1) * w1.x_stride +
                               w2.start(o2) * w2.x_stride;
    Wide<T> result[width] = {};
    Taken best{};
    bool any = false;
    const auto [b0, e0] = w0.taps(o0);
    const auto [b1, e1] = w1.taps(o1);
    const auto [b2, e2] = w2.taps(o2);
    for (std::int32_t t0 = b0; t0 < e0; ++t0) {
      for (std::int32_t t1 = b1; t1 < e1; ++t1) {
        for (std::int32_t t2 = b2; t2 < e2; ++t2) {
          const Vector operand = x[first + t0 * w0.dilation * w0.x_stride +
                                   t1 * w1.dilation * w1.x_stride + t2 * w2.dilation * w2.x_stride];
          for (int k = 0; k < width; ++k) {
            const auto value = static_cast<Wide<T>>(operand.at[k]);
            if (!maximum) {
              result[k] += value;
            } else if (!any || value > result[k]) {  // the first of the largest
              result[k] = value;
              best.at[k] = static_cast<std::uint16_t>(tap(t0, t1, t2));
            }
          }
          any = true;
        }
      }
    }
    if (taken != nullptr) {
      taken[i] = best;
      return;
    }
    const Wide<T> factor = maximum ? Wide<T>{1} : Wide<T>{1} / divisor(o0, o1, o2);
    Vector out{};
    for (int k = 0; k < width; ++k) out.at[k] = static_cast<T>(result[k] * factor);
    output(at) = out;
  }
};

/// The gradient of what a part of a pooling layer reads: a thread for an operand of `width`
/// neighbouring channels sums what the outputs give it whose windows hold it.
template <class T, int width>
struct PoolGradient {
  PoolPart<T, width> part;        ///< with the outputs' gradient as y
  Lanes<T, width>* dx = nullptr;  ///< first operand
  std::int64_t sample = 0, channel = 0, stride0 = 0, stride1 = 0, stride2 = 0;  ///< of dx
  std::int32_t begin0 = 0, begin1 = 0, begin2 = 0;  ///< the operands' positions
  std::uint32_t count0 = 1, count1 = 1, count2 = 1;
  bool adds = false;

  constexpr void operator()(std::uint32_t i) const {
    const auto at = part.place(i, count0, count1, count2);
    const std::int32_t a0 = begin0 + static_cast<std::int32_t>(at.i0);
    const std::int32_t a1 = begin1 + static_cast<std::int32_t>(at.i1);
    const std::int32_t a2 = begin2 + static_cast<std::int32_t>(at.i2);
    Wide<T> sum[width] = {};
    each_output(part.w0, a0, [&](std::int32_t o0, std::int32_t t0) {
      each_output(part.w1, a1, [&](std::int32_t o1, std::int32_t t1) {
        each_output(part.w2, a2, [&](std::int32_t o2, std::int32_t t2) {
          auto from = at;
          from.i0 = static_cast<std::uint32_t>(o0 - part.w0.begin);
          from.i1 = static_cast<std::uint32_t>(o1 - part.w1.begin);
          from.i2 = static_cast<std::uint32_t>(o2 - part.w2.begin);
          const Lanes<T, width> slope = part.output(from);
          if (part.maximum) {
            const auto taken = part.taken[part.number(from)];
            const auto tap = part.tap(t0, t1, t2);
            for (int k = 0; k < width; ++k) {
              if (taken.at[k] == tap) sum[k] += static_cast<Wide<T>>(slope.at[k]);
            }
          } else {
            const Wide<T> factor = Wide<T>{1} / part.divisor(o0, o1, o2);
            for (int k = 0; k < width; ++k) sum[k] += static_cast<Wide<T>>(slope.at[k]) * factor;
          }
        });
      });
    });
    Lanes<T, width>& to = dx[at.sample * sample + at.channel * channel + at.i0 * stride0 +
                             at.i1 * stride1 + at.i2 * stride2];
    Lanes<T, width> result{};
    if (adds) result = to;
    for (int k = 0; k < width; ++k) {
      result.at[k] = static_cast<T>(adds ? static_cast<Wide<T>>(result.at[k]) + sum[k] : sum[k]);
    }
    to = result;
  }

 private:
  /// visit(o, t) for the part's outputs along a window whose tap t is at `a`.
  template <class Visit>
  constexpr void each_output(const PoolWindow& w, std::int32_t a, const Visit& visit) const {
    const std::int32_t top = a + w.pad;
    const std::int32_t low = top - (w.kernel - 1) * w.dilation;
    std::int32_t o = low <= 0 ? 0 : (low + w.step - 1) / w.step;
    if (o < w.begin) o = w.begin;
    const std::int32_t end = w.begin + static_cast<std::int32_t>(w.count);
    for (; o < end && o * w.step <= top; ++o) {
      const std::int32_t gap = top - o * w.step;
      if (w.dilation == 1 || gap % w.dilation == 0) visit(o, gap / w.dilation);
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
