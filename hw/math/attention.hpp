// Attention in one kernel, from its definition: for every token and head a softmax over the keys.
// The host's, and what runs where no library takes the shape. And look-up in a table.
#pragma once

#include <cmath>

#include "hw/math/softmax.hpp"
#include "hw/math/view.hpp"

namespace parsim::hw {

/// A part of an attention layer: sample × token × channel, a head's channels are contiguous.
/// Its lines are the tokens of all heads of all samples.
template <class T>
struct AttentionPart {
  View<T> query, key, value;
  View<T> y;  ///< output, or its gradient
  Box out;
  std::int32_t width = 1;                  ///< channels of a head's queries and keys
  std::int32_t value_width = 1;            ///< of its values and its output
  std::int32_t group = 1;                  ///< heads that share keys
  std::int32_t keys = 1;                   ///< tokens of keys and values
  std::int32_t first_head = 0, heads = 1;  ///< that the part has channels of
  bool causal = false;
  std::int32_t window = 0;  ///< of a causal mask: keys that a token sees at most; 0: all
  Wide<T>* top = nullptr;   ///< by line
  Wide<T>* sum = nullptr;   ///< by line
  Wide<T>* dot = nullptr;   ///< by line, backward: sum of weight · slope

  struct Line {
    std::uint32_t number;
    std::int32_t sample, head, token;
  };
  [[nodiscard]] constexpr std::int32_t tokens() const { return out.extent(1); }
  [[nodiscard]] constexpr std::uint32_t lines() const {
    return static_cast<std::uint32_t>(out.extent(0) * heads * tokens());
  }
  [[nodiscard]] constexpr Line line(std::uint32_t number) const {
    const auto n = static_cast<std::int32_t>(number);
    const std::int32_t outer = n / tokens();
    return {number, out.begin[0] + outer / heads, first_head + outer % heads,
            out.begin[1] + n % tokens()};
  }
  [[nodiscard]] constexpr Line line(std::int32_t sample, std::int32_t head,
                                    std::int32_t token) const {
    const std::int32_t outer = (sample - out.begin[0]) * heads + head - first_head;
    return {static_cast<std::uint32_t>(outer * tokens() + token - out.begin[1]), sample, head,
            token};
  }
  [[nodiscard]] constexpr bool sees(const Line& line, std::int32_t k) const {
    return !causal || (k <= line.token && (window == 0 || k > line.token - window));
  }
  [[nodiscard]] constexpr Wide<T> scale() const {
    return Wide<T>{1} / std::sqrt(static_cast<Wide<T>>(width));
  }
  [[nodiscard]] constexpr Index query_at(const Line& line, std::int32_t c) const {
    return {{line.sample, line.token, line.head * width + c}};
  }
  [[nodiscard]] constexpr Index key_at(const Line& line, std::int32_t k, std::int32_t c) const {
    return {{line.sample, k, line.head / group * width + c}};
  }
  [[nodiscard]] constexpr Index value_at(const Line& line, std::int32_t k, std::int32_t c) const {
    return {{line.sample, k, line.head / group * value_width + c}};
  }
  [[nodiscard]] constexpr Index out_at(const Line& line, std::int32_t c) const {
    return {{line.sample, line.token, line.head * value_width + c}};
  }
  [[nodiscard]] constexpr Wide<T> score(const Line& line, std::int32_t k) const {
    Wide<T> sum_of = 0;
    for (std::int32_t c = 0; c < width; ++c) {
      sum_of += query.wide(query_at(line, c)) * key.wide(key_at(line, k, c));
    }
    return sum_of * scale();
  }
  [[nodiscard]] constexpr Wide<T> weight(const Line& line, std::int32_t k) const {
    return std::exp(score(line, k) - top[line.number]) / sum[line.number];
  }
  /// Gradient of a weight.
  [[nodiscard]] constexpr Wide<T> slope(const Line& line, std::int32_t k) const {
    Wide<T> sum_of = 0;
    for (std::int32_t c = 0; c < value_width; ++c) {
      const Index at = out_at(line, c);
      if (out.contains(at)) sum_of += y.wide(at) * value.wide(value_at(line, k, c));
    }
    return sum_of;
  }
  /// Gradient of a score, before the scale.
  [[nodiscard]] constexpr Wide<T> score_slope(const Line& line, std::int32_t k) const {
    return weight(line, k) * (slope(line, k) - dot[line.number]);
  }
};

/// A reduction: rows are lines, terms keys.
template <class T>
struct AttentionSums {
  using Sum = SoftmaxSums<Wide<T>>;
  AttentionPart<T> part;

  [[nodiscard]] constexpr Sum term(std::uint32_t row, std::uint32_t k) const {
    const auto line = part.line(row);
    const auto at = static_cast<std::int32_t>(k);
    return part.sees(line, at) ? Sum{part.score(line, at), 1} : Sum{};
  }
  constexpr void finish(std::uint32_t row, Sum sums) const {
    part.top[row] = sums.top;
    part.sum[row] = sums.sum;
  }
};
template <class T>
struct AttentionDots {
  AttentionPart<T> part;

  [[nodiscard]] constexpr Sums<Wide<T>> term(std::uint32_t row, std::uint32_t k) const {
    const auto line = part.line(row);
    const auto at = static_cast<std::int32_t>(k);
    if (!part.sees(line, at)) return {};
    return {part.weight(line, at) * part.slope(line, at), 0};
  }
  constexpr void finish(std::uint32_t row, Sums<Wide<T>> sums) const { part.dot[row] = sums.first; }
};

template <class T>
struct AttentionForward {
  Loops loops;  ///< over part.out
  AttentionPart<T> part;

  constexpr void operator()(std::uint32_t i) const {
    const Index at = loops.index(i);
    const auto line = part.line(at.at[0], at.at[2] / part.value_width, at.at[1]);
    const std::int32_t c = at.at[2] % part.value_width;
    Wide<T> sum = 0;
    for (std::int32_t k = 0; k < part.keys; ++k) {
      if (!part.sees(line, k)) continue;
      sum += part.weight(line, k) * part.value.wide(part.value_at(line, k, c));
    }
    part.y(at) = static_cast<T>(sum);
  }
};

template <class T>
struct AttentionQueries {
  Loops loops;  ///< over the queries that the part reads
  AttentionPart<T> part;
  View<T> dx;

  constexpr void operator()(std::uint32_t i) const {
    const Index at = loops.index(i);
    const auto line = part.line(at.at[0], at.at[2] / part.width, at.at[1]);
    Wide<T> sum = 0;
    for (std::int32_t k = 0; k < part.keys; ++k) {
      if (!part.sees(line, k)) continue;
      sum += part.score_slope(line, k) * part.key.wide(part.key_at(line, k, at.at[2] % part.width));
    }
    add_to(dx(at), sum * part.scale(), false);
  }
};

/// Of keys or of values: per element, over the lines that see it.
template <class T>
struct AttentionKeys {
  Loops loops;  ///< over the keys that the part reads
  AttentionPart<T> part;
  View<T> dx;
  bool of_values = false;

  constexpr void operator()(std::uint32_t i) const {
    const Index at = loops.index(i);
    const std::int32_t k = at.at[1];
    const std::int32_t width = of_values ? part.value_width : part.width;
    const std::int32_t c = at.at[2] % width;
    const std::int32_t first = at.at[2] / width * part.group;
    Wide<T> sum = 0;
    for (std::int32_t head = first; head < first + part.group; ++head) {
      if (head < part.first_head || head >= part.first_head + part.heads) continue;
      for (std::int32_t token = part.out.begin[1]; token < part.out.end[1]; ++token) {
        const auto line = part.line(at.at[0], head, token);
        if (!part.sees(line, k)) continue;
        if (!of_values) {
          sum += part.score_slope(line, k) * part.query.wide(part.query_at(line, c)) * part.scale();
        } else if (const Index made = part.out_at(line, c); part.out.contains(made)) {
          sum += part.weight(line, k) * part.y.wide(made);
        }
      }
    }
    add_to(dx(at), sum, false);
  }
};

/// Look-up: the row of the table for each token, zero for rows that the part has not; backward adds
/// the gradient to them.
template <class T>
struct LookUp {
  Loops loops;  ///< over part.out
  View<T> tokens, table, y;
  std::int32_t rows = 1;                      ///< of the whole table
  std::int32_t rows_begin = 0, rows_end = 1;  ///< that the part has
  int channel = 2;
  bool adds = false, backward = false;

  /// Training data lies in (-1, 1): spread over the rows.
  [[nodiscard]] constexpr std::int32_t row_of(Wide<T> token) const {
    const auto row =
        static_cast<std::int32_t>(std::floor((token + 1) / 2 * static_cast<Wide<T>>(rows)));
    return row < 0 ? 0 : row < rows ? row : rows - 1;
  }
  constexpr void operator()(std::uint32_t i) const {
    const Index at = loops.index(i);
    Index token = at;
    token.set(channel, 0);
    const std::int32_t row = row_of(tokens.wide(token));
    const bool has = row >= rows_begin && row < rows_end;
    const Index entry{{row, at.along(channel)}};
    if (backward) {
      if (has) add_to(table(entry), y.wide(at), true);
    } else {
      const Wide<T> value = has ? table.wide(entry) : 0;
      if (adds) {
        add_to(y(at), value, false);
      } else {
        y(at) = static_cast<T>(value);
      }
    }
  }
};

/// A reduction: the gradient of a table with few rows, where additions would wait for each other.
/// Rows are the part's entries, terms its tokens.
template <class T>
struct LookUpGradient {
  LookUp<T> look_up;
  Loops positions;  ///< over part.out without the channel
  std::uint32_t channels = 1;
  std::int32_t first_channel = 0;
  bool atomic = false;

  [[nodiscard]] constexpr Index entry(std::uint32_t row) const {
    return {{look_up.rows_begin + static_cast<std::int32_t>(row / channels),
             first_channel + static_cast<std::int32_t>(row % channels)}};
  }
  [[nodiscard]] constexpr Sums<Wide<T>> term(std::uint32_t row, std::uint32_t i) const {
    Index at = positions.index(i);
    const Index here = entry(row);
    if (look_up.row_of(look_up.tokens.wide(at)) != here.at[0]) return {};
    at.set(look_up.channel, here.at[1]);
    return {look_up.y.wide(at), 0};
  }
  constexpr void finish(std::uint32_t row, Sums<Wide<T>> sums) const {
    add_to(look_up.table(entry(row)), sums.first, atomic);
  }
};

}  // namespace parsim::hw
