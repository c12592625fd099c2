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
      in.at[axis] = out.at[axis] * step + offset;
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
    for (int a = in_rank - 1; a >= 1; --a) {
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
      for (int a = 1; a < first_not_head; ++a) head = head * out_extent[a] + out.at[a];
      in.at[1] = out.at[tokens];
      in.at[2] = head * out_extent[width] + out.at[width];
      return in;
    }
    in.at[tokens] = out.at[1];
    in.at[width] = out.at[2] % in_extent[width];
    std::int32_t head = out.at[2] / in_extent[width];
    for (int a = first_not_head - 1; a >= 1; --a) {
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

/// A part of a pooling layer: windows over the last `spatial` axes, the first of them `first_axis`.
template <class T>
struct PoolPart {
  View<T> x;
  Box out;
  int spatial = 2, first_axis = 2;
  std::int32_t kernel[3] = {1, 1, 1}, stride[3] = {1, 1, 1}, pad[3] = {}, dilation[3] = {1, 1, 1};
  std::int32_t extent[3] = {1, 1, 1};  ///< of the whole input
  std::int32_t pad_end[3] = {};
  bool maximum = true, count_padding = true;

  [[nodiscard]] constexpr std::int32_t taps() const {
    std::int32_t product = 1;
    for (int s = 0; s < spatial; ++s) product *= kernel[s];
    return product;
  }
  /// Operand of a tap; false in the padding.
  constexpr bool tap(const Index& o, std::int32_t t, Index& in) const {
    in = o;
    bool inside = true;
    for (int s = spatial - 1; s >= 0; --s) {
      const std::int32_t k = t % kernel[s];
      t /= kernel[s];
      const std::int32_t at = o.at[first_axis + s] * stride[s] - pad[s] + k * dilation[s];
      inside = inside && at >= 0 && at < extent[s];
      in.at[first_axis + s] = at;
    }
    return inside;
  }
  /// What an average divides by. With count_padding the window is clipped to the padded input: what
  /// ceil mode lets stick out beyond it does not count (PyTorch's rule).
  [[nodiscard]] constexpr std::int32_t divisor(const Index& o) const {
    std::int32_t counted = 1;
    for (int s = 0; s < spatial; ++s) {
      std::int32_t inside = 0;
      for (std::int32_t k = 0; k < kernel[s]; ++k) {
        const std::int32_t at = o.at[first_axis + s] * stride[s] - pad[s] + k * dilation[s];
        const bool in = count_padding ? at < extent[s] + pad_end[s] : at >= 0 && at < extent[s];
        inside += in ? 1 : 0;
      }
      counted *= inside;
    }
    return counted;
  }
  /// The first of the largest taps of a window.
  [[nodiscard]] constexpr Index largest(const Index& o) const {
    Index best{};
    Wide<T> most = 0;
    bool any = false;
    const std::int32_t count = taps();
    for (std::int32_t t = 0; t < count; ++t) {
      Index in{};
      if (!tap(o, t, in)) continue;
      const Wide<T> value = x.wide(in);
      if (any && !(value > most)) continue;
      any = true;
      most = value;
      best = in;
    }
    return best;
  }
};

template <class T>
struct PoolForward {
  Loops loops;
  PoolPart<T> part;
  View<T> y;

  constexpr void operator()(std::uint32_t i) const {
    const Index o = loops.index(i);
    if (part.maximum) {
      y(o) = part.x(part.largest(o));
      return;
    }
    Wide<T> sum = 0;
    const std::int32_t count = part.taps();
    for (std::int32_t t = 0; t < count; ++t) {
      Index in{};
      if (part.tap(o, t, in)) sum += part.x.wide(in);
    }
    y(o) = static_cast<T>(sum / static_cast<Wide<T>>(part.divisor(o)));
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
    Wide<T> sum = 0;
    const std::int32_t count = part.taps();
    for (std::int32_t t = 0; t < count; ++t) {
      Index o = in;
      std::int32_t rest = t;
      bool inside = true;
      for (int s = part.spatial - 1; s >= 0; --s) {
        const int a = part.first_axis + s;
        const std::int32_t k = rest % part.kernel[s];
        rest /= part.kernel[s];
        const std::int32_t position = in.at[a] + part.pad[s] - k * part.dilation[s];
        inside = inside && position >= 0 && position % part.stride[s] == 0;
        o.at[a] = position / part.stride[s];
        inside = inside && o.at[a] >= part.out.begin[a] && o.at[a] < part.out.end[a];
      }
      if (!inside) continue;
      if (!part.maximum) {
        sum += dy.wide(o) / static_cast<Wide<T>>(part.divisor(o));
        continue;
      }
      const Index best = part.largest(o);
      bool same = true;
      for (int a = 0; a < most_axes; ++a) same = same && best.at[a] == in.at[a];
      if (same) sum += dy.wide(o);
    }
    add_to(dx(in), sum, false);
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
    for (int a = 0; a < out_rank; ++a) {
      if (kept[a] >= 0) start.at[kept[a]] = o.at[a];
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
