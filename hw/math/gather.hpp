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
  int axis = 0;
  std::int32_t kernel = 1, step = 1, pad = 0, pad_end = 0, dilation = 1;
  std::int32_t extent = 1;      ///< of the whole input
  std::int64_t stride = 0;      ///< of the input in memory
  std::int32_t held_begin = 0;  ///< first position of the input that the device holds

  struct Taps {
    std::int32_t begin, end;  ///< those that are not in the padding
    std::int32_t at;          ///< position of tap 0
  };
  [[nodiscard]] constexpr Taps taps(std::int32_t out) const {
    const std::int32_t at = out * step - pad;
    const std::int32_t begin = at >= 0 ? 0 : (dilation - 1 - at) / dilation;
    const std::int32_t fit = extent <= at ? 0 : (extent - at + dilation - 1) / dilation;
    return {begin, fit < kernel ? fit : kernel, at};
  }
  /// What an average counts. With count_padding the window is clipped to the padded input: what
  /// ceil mode lets stick out beyond it does not count (PyTorch's rule).
  [[nodiscard]] constexpr std::int32_t counted(std::int32_t out, bool count_padding) const {
    const Taps inside = taps(out);
    if (!count_padding) return inside.end - inside.begin;
    const std::int32_t fit = (extent + pad_end - inside.at + dilation - 1) / dilation;
    return fit < kernel ? fit : kernel;
  }
};

/// A part of a pooling layer: windows over the last one to three axes. Windows that are not there
/// have one tap, at axis 0 with stride 0.
template <class T>
struct PoolPart {
  static constexpr int most_windows = 3;
  View<T> x;
  Box out;
  PoolWindow windows[most_windows];
  bool maximum = true, count_padding = true;

  [[nodiscard]] constexpr PoolWindow::Taps taps(const Index& o, int s) const {
    const PoolWindow& w = windows[s];
    return w.axis == 0 ? PoolWindow::Taps{0, 1, 0} : w.taps(o.along(w.axis));
  }
  /// What an average divides by.
  [[nodiscard]] constexpr Wide<T> divisor(const Index& o) const {
    std::int32_t product = 1;
    for (const PoolWindow& w : windows) {
      if (w.axis != 0) product *= w.counted(o.along(w.axis), count_padding);
    }
    return static_cast<Wide<T>>(product);
  }
  /// Offset of the output's tap 0 in x; the taps' steps are those of step().
  [[nodiscard]] constexpr std::int64_t origin(const Index& o) const {
    Index start = o;
    std::int64_t offset = 0;
    for (const PoolWindow& w : windows) {
      if (w.axis == 0) continue;
      offset += (w.taps(o.along(w.axis)).at - w.held_begin) * w.stride;
      start.set(w.axis, w.held_begin);
    }
    return offset + x.offset(start);
  }
  [[nodiscard]] constexpr std::int64_t step(int s) const {
    return windows[s].stride * windows[s].dilation;
  }
  /// Largest operand of a window, and offset of the first that is so large.
  struct Top {
    std::int64_t offset;
    Wide<T> value;
  };
  [[nodiscard]] constexpr Top largest(const Index& o) const {
    const auto [b0, e0, a0] = taps(o, 0);
    const auto [b1, e1, a1] = taps(o, 1);
    const auto [b2, e2, a2] = taps(o, 2);
    const std::int64_t first = origin(o);
    Top top{-1, 0};
    for (std::int32_t i = b0; i < e0; ++i) {
      for (std::int32_t j = b1; j < e1; ++j) {
        std::int64_t at = first + i * step(0) + j * step(1) + b2 * step(2);
        for (std::int32_t k = b2; k < e2; ++k, at += step(2)) {
          const auto value = static_cast<Wide<T>>(x.data[at]);
          if (top.offset < 0 || value > top.value) top = {at, value};
        }
      }
    }
    return top;
  }
  [[nodiscard]] constexpr Wide<T> mean(const Index& o) const {
    const auto [b0, e0, a0] = taps(o, 0);
    const auto [b1, e1, a1] = taps(o, 1);
    const auto [b2, e2, a2] = taps(o, 2);
    const std::int64_t first = origin(o);
    Wide<T> sum = 0;
    for (std::int32_t i = b0; i < e0; ++i) {
      for (std::int32_t j = b1; j < e1; ++j) {
        std::int64_t at = first + i * step(0) + j * step(1) + b2 * step(2);
        for (std::int32_t k = b2; k < e2; ++k, at += step(2)) {
          sum += static_cast<Wide<T>>(x.data[at]);
        }
      }
    }
    return sum / divisor(o);
  }
  /// The outputs of the part along a window's axis that read a position: every one whose distance
  /// is a tap.
  struct Readers {
    std::int32_t begin, end;
  };
  [[nodiscard]] constexpr Readers readers(const Index& in, int s) const {
    const PoolWindow& w = windows[s];
    if (w.axis == 0) return {0, 1};
    std::int32_t low = 0;
    std::int32_t high = 0;
    for (int a = 0; a < most_axes; ++a) {
      low = a == w.axis ? out.begin[a] : low;
      high = a == w.axis ? out.end[a] : high;
    }
    const std::int32_t last = in.along(w.axis) + w.pad;
    const std::int32_t first = last - (w.kernel - 1) * w.dilation;
    const std::int32_t begin = first <= 0 ? 0 : (first + w.step - 1) / w.step;
    const std::int32_t end = last / w.step + 1;
    return {begin > low ? begin : low, end < high ? end : high};
  }
};

template <class T>
struct PoolForward {
  Loops loops;
  PoolPart<T> part;
  View<T> y;

  constexpr void operator()(std::uint32_t i) const {
    const Index o = loops.index(i);
    y(o) = static_cast<T>(part.maximum ? part.largest(o).value : part.mean(o));
  }
};

/// Per input element, over the windows that hold it.
template <class T>
struct PoolBackward {
  Loops loops;
  PoolPart<T> part;
  View<T> dy, dx;

  constexpr void operator()(std::uint32_t i) const {
    const Index in = loops.index(i);
    const std::int64_t here = part.x.offset(in);
    const auto [b0, e0] = part.readers(in, 0);
    const auto [b1, e1] = part.readers(in, 1);
    const auto [b2, e2] = part.readers(in, 2);
    Wide<T> sum = 0;
    for (std::int32_t o0 = b0; o0 < e0; ++o0) {
      for (std::int32_t o1 = b1; o1 < e1; ++o1) {
        for (std::int32_t o2 = b2; o2 < e2; ++o2) {
          Index o = in;
          if (!reads(in, 0, o0, o) || !reads(in, 1, o1, o) || !reads(in, 2, o2, o)) continue;
          if (!part.maximum) {
            sum += dy.wide(o) / part.divisor(o);
          } else if (part.largest(o).offset == here) {
            sum += dy.wide(o);
          }
        }
      }
    }
    add_to(dx(in), sum, false);
  }

 private:
  /// Whether one of the output's taps along the window's axis is the input; sets the output.
  [[nodiscard]] constexpr bool reads(const Index& in, int s, std::int32_t out, Index& o) const {
    const PoolWindow& w = part.windows[s];
    if (w.axis == 0) return true;
    o.set(w.axis, out);
    return (in.along(w.axis) + w.pad - out * w.step) % w.dilation == 0;
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
