// Softmax along lines of a tensor, and the loss.
#pragma once

#include <cmath>
#include <cstdint>

#include "hw/math/numbers.hpp"
#include "hw/math/view.hpp"

namespace parsim::hw {

/// What a softmax divides by: the largest of its numbers, and the sum of exp(number - largest).
template <class A>
struct SoftmaxSums {
  A top = 0, sum = 0;  ///< of no numbers: sum 0

  constexpr SoftmaxSums& operator+=(const SoftmaxSums& other) {
    if (other.sum == 0) return *this;
    if (sum == 0) return *this = other;
    const bool more = other.top > top;
    const A factor = std::exp(more ? top - other.top : other.top - top);
    sum = more ? other.sum + sum * factor : sum + other.sum * factor;
    top = more ? other.top : top;
    return *this;
  }
};

/// Lines of a tensor along an axis; rows of reductions are lines.
template <class T>
struct SoftmaxLines {
  Loops lines;
  View<T> x, y, dx;  ///< y: output, or its gradient
  int axis = 1;
  std::int32_t first = 0;               ///< index along the axis of a line's first number
  std::uint32_t extent = 0, count = 0;  ///< of a line; of lines
  std::int64_t stride = 1;              ///< of x along a line
  Wide<T>* top = nullptr;               ///< by line
  Wide<T>* sum = nullptr;               ///< by line
  Wide<T>* dot = nullptr;  ///< by line, backward: sum of gradient · softmax; of a loss, the label

  [[nodiscard]] constexpr Index at(std::uint32_t line, std::uint32_t i) const {
    Index start{};
    start.set(axis, first + static_cast<std::int32_t>(i));
    return lines.index(line, start);
  }
  [[nodiscard]] constexpr Wide<T> probability(const Index& index, std::uint32_t line) const {
    return std::exp(x.wide(index) - top[line]) / sum[line];
  }
  /// A line's first number.
  [[nodiscard]] constexpr const T* begin(std::uint32_t line) const {
    return x.data + x.offset(at(line, 0));
  }
  /// Of the i-th element: neighbours are contiguous in memory.
  struct Place {
    std::uint32_t line, i;
  };
  [[nodiscard]] constexpr Place place(std::uint32_t i, bool along) const {
    if (along) return {i / extent, i % extent};
    return {i % count, i / count};
  }
};

template <class T>
struct SoftmaxDivisor {
  using Sum = SoftmaxSums<Wide<T>>;
  SoftmaxLines<T> lines;
  bool terms_adjacent = false;

  [[nodiscard]] constexpr const T* begin(std::uint32_t line) const { return lines.begin(line); }
  [[nodiscard]] constexpr Sum term(const T* begin, std::uint32_t i) const {
    return {static_cast<Wide<T>>(begin[i * lines.stride]), 1};
  }
  constexpr void finish(std::uint32_t line, Sum sums) const {
    lines.top[line] = sums.top;
    lines.sum[line] = sums.sum;
  }
};
template <class T>
struct SoftmaxDot {
  SoftmaxLines<T> lines;
  bool terms_adjacent = false;

  [[nodiscard]] constexpr Sums<Wide<T>> term(std::uint32_t line, std::uint32_t i) const {
    const Index at = lines.at(line, i);
    return {lines.y.wide(at) * lines.probability(at, line), 0};
  }
  constexpr void finish(std::uint32_t line, Sums<Wide<T>> sums) const {
    lines.dot[line] = sums.first;
  }
};
/// y = softmax(x); or, with p = softmax(x), dx_k += p_k (g_k - sum_i g_i p_i).
template <class T>
struct SoftmaxWrite {
  SoftmaxLines<T> lines;
  bool along = false;

  constexpr void operator()(std::uint32_t n) const {
    const auto [line, i] = lines.place(n, along);
    const Index at = lines.at(line, i);
    const Wide<T> probability = lines.probability(at, line);
    if (lines.dx.data == nullptr) {
      lines.y(at) = static_cast<T>(probability);
    } else {
      add_to(lines.dx(at), probability * (lines.y.wide(at) - lines.dot[line]), false);
    }
  }
};

/// Softmax cross-entropy: a line for every position of a sample. Its label is that of the
/// position's number among all positions of the batch; a sample's loss is the mean of its lines'.
template <class T>
struct CrossEntropy {
  SoftmaxLines<T> lines;
  std::int64_t first_sample = 0;   ///< of the micro-batch in the global batch
  std::int64_t positions = 1;      ///< of a sample in this part
  std::int64_t all_positions = 1;  ///< of a sample
  std::int64_t first_position = 0;
  std::int64_t classes = 1, first_class = 0;  ///< of all parts; of this one
  Wide<T> share = 1;                          ///< of a line in the batch's loss

  /// The label's number in the line; it may lie in another part of the classes.
  [[nodiscard]] constexpr std::int32_t truth(std::uint32_t line) const {
    const auto here = static_cast<std::int64_t>(line);
    const std::int64_t sample = first_sample + lines.lines.loop[0].begin + here / positions;
    return static_cast<std::int32_t>(
        label(sample * all_positions + first_position + here % positions, classes) - first_class);
  }
  [[nodiscard]] constexpr bool has(std::int32_t truth) const {
    return truth >= 0 && truth < static_cast<std::int32_t>(lines.extent);
  }
};
/// What devices exchange that have a part of the classes each: see loss_statistics.
template <class T>
struct LossStatistics {
  View<T> view;
  std::int32_t parts = 0, part = 0;  ///< 0: the classes are not cut
  std::int32_t first_sample = 0, first_position = 0;
  std::uint32_t positions = 1;

  struct Line {
    Wide<T> logarithm = 0;  ///< of the sum of exp(score)
    Wide<T> score = 0;      ///< of the label
  };
  [[nodiscard]] constexpr Line joined(std::uint32_t line) const {
    SoftmaxSums<Wide<T>> sums;
    Line all;
    for (std::int32_t p = 0; p < parts; ++p) {
      sums += {get(line, 4 * p), 1};
      all.score += get(line, 4 * p + 2);
    }
    all.logarithm = sums.top + std::log(sums.sum);
    return all;
  }
  constexpr void give(std::uint32_t line, const Line& own) const {
    put(line, 4 * part, own.logarithm);
    put(line, 4 * part + 2, own.score);
  }

 private:
  [[nodiscard]] constexpr Index at(std::uint32_t line, std::int32_t number) const {
    return {{first_sample + static_cast<std::int32_t>(line / positions),
             first_position + static_cast<std::int32_t>(line % positions), number}};
  }
  [[nodiscard]] constexpr Wide<T> get(std::uint32_t line, std::int32_t number) const {
    return view.wide(at(line, number)) + view.wide(at(line, number + 1));
  }
  /// A number of 16 bits would have but two or three digits: the next one has what it lacks.
  constexpr void put(std::uint32_t line, std::int32_t number, Wide<T> value) const {
    const T first = static_cast<T>(value);
    view(at(line, number)) = first;
    view(at(line, number + 1)) = static_cast<T>(value - static_cast<Wide<T>>(first));
  }
};
/// Line by line: gives the others what a part of the classes has.
template <class T>
struct CrossEntropyShare {
  CrossEntropy<T> loss;
  LossStatistics<T> statistics;

  constexpr void operator()(std::uint32_t line) const {
    const std::int32_t truth = loss.truth(line);
    const Wide<T> score =
        loss.has(truth) ? loss.lines.x.wide(loss.lines.at(line, static_cast<std::uint32_t>(truth)))
                        : Wide<T>{0};
    statistics.give(line, {loss.lines.top[line] + std::log(loss.lines.sum[line]), score});
  }
};
/// Line by line: the sums over all parts of the classes.
template <class T>
struct CrossEntropyJoin {
  CrossEntropy<T> loss;
  LossStatistics<T> statistics;

  constexpr void operator()(std::uint32_t line) const {
    loss.lines.top[line] = statistics.joined(line).logarithm;
    loss.lines.sum[line] = 1;
    loss.lines.dot[line] = static_cast<Wide<T>>(loss.truth(line));
  }
};
/// The softmax's sums of every line, and its label.
template <class T>
struct CrossEntropyDivisor {
  using Sum = SoftmaxSums<Wide<T>>;
  CrossEntropy<T> loss;
  bool terms_adjacent = false;

  [[nodiscard]] constexpr const T* begin(std::uint32_t line) const {
    return loss.lines.begin(line);
  }
  [[nodiscard]] constexpr Sum term(const T* begin, std::uint32_t i) const {
    return {static_cast<Wide<T>>(begin[i * loss.lines.stride]), 1};
  }
  constexpr void finish(std::uint32_t line, Sum sums) const {
    loss.lines.top[line] = sums.top;
    loss.lines.sum[line] = sums.sum;
    loss.lines.dot[line] = static_cast<Wide<T>>(loss.truth(line));
  }
};
/// A reduction: rows are elements of the output, terms their positions; or, where every element has
/// one position, a kernel for each.
template <class T>
struct CrossEntropyForward {
  CrossEntropy<T> loss;
  LossStatistics<T> statistics;
  Loops out;
  View<T> y;
  std::uint32_t positions = 1;  ///< of an element

  constexpr void operator()(std::uint32_t i) const { y(out.index(i)) = static_cast<T>(value(i)); }
  [[nodiscard]] constexpr Sums<Wide<T>> term(std::uint32_t row, std::uint32_t i) const {
    return {value(row * positions + i), 0};
  }
  constexpr void finish(std::uint32_t row, Sums<Wide<T>> sums) const {
    y(out.index(row)) = static_cast<T>(sums.first / static_cast<Wide<T>>(positions));
  }

 private:
  [[nodiscard]] constexpr Wide<T> value(std::uint32_t line) const {
    if (statistics.parts > 0) {
      const auto all = statistics.joined(line);
      return all.logarithm - all.score;
    }
    const Index at = loss.lines.at(line, static_cast<std::uint32_t>(loss.truth(line)));
    return std::log(loss.lines.sum[line]) - (loss.lines.x.wide(at) - loss.lines.top[line]);
  }
};
template <class T>
struct CrossEntropyBackward {
  CrossEntropy<T> loss;
  bool along = true;

  constexpr void operator()(std::uint32_t n) const {
    const auto [line, i] = loss.lines.place(n, along);
    const Index at = loss.lines.at(line, i);
    add_to(loss.lines.dx(at), slope(loss.lines.x.wide(at), line, i), false);
  }

 private:
  [[nodiscard]] constexpr Wide<T> slope(Wide<T> x, std::uint32_t line, std::uint32_t i) const {
    const Wide<T> probability = std::exp(x - loss.lines.top[line]) / loss.lines.sum[line];
    const Wide<T> truth = static_cast<Wide<T>>(i) == loss.lines.dot[line] ? 1 : 0;
    return (probability - truth) * loss.share;
  }
};

/// Row by row: the gradient where lines lie behind each other without gaps.
template <class T>
struct CrossEntropyRows {
  CrossEntropy<T> loss;
  const T* x = nullptr;
  T* dx = nullptr;
  bool adds = false;

  using Sum = SoftmaxSums<Wide<T>>;
  struct Line {
    const T* x = nullptr;
    T* dx = nullptr;
  };
  struct Made {
    Wide<T> logarithm = 0;  ///< of the sum of exp(x)
    std::uint32_t truth = 0;
  };
  [[nodiscard]] constexpr Line begin(std::uint32_t line) const {
    const std::size_t at = std::size_t{line} * loss.lines.extent;
    return {x + at, dx + at};
  }
  [[nodiscard]] constexpr Sum term(const Line& line, std::uint32_t i) const {
    return {static_cast<Wide<T>>(line.x[i]), 1};
  }
  [[nodiscard]] constexpr Made finish(std::uint32_t line, const Sum& sums) const {
    return {sums.top + std::log(sums.sum), static_cast<std::uint32_t>(loss.truth(line))};
  }
  constexpr void write(const Line& line, std::uint32_t i, const Made& made) const {
    const Wide<T> probability = std::exp(static_cast<Wide<T>>(line.x[i]) - made.logarithm);
    const Wide<T> value = (probability - (i == made.truth ? 1 : 0)) * loss.share;
    line.dx[i] = static_cast<T>(adds ? static_cast<Wide<T>>(line.dx[i]) + value : value);
  }
};

}  // namespace parsim::hw
