// Attention in one kernel, and the keys of multi-head latent attention.
#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "core/layers/kinds.hpp"

namespace parsim::layers {

namespace {

std::int64_t head_width(const Attention& kind, const Shape& queries) {
  return queries.axes[1].extent / kind.heads;
}

std::int64_t value_width(const Attention& kind, const Shape& values) {
  return values.axes[1].extent / kind.key_heads;
}

/// Positions of tokens with neighbouring indices, in runs.
std::vector<Interval> runs_of(Interval indices, std::int64_t tokens, std::int32_t zigzag) {
  if (zigzag == 0) return {indices};
  const std::int64_t each = tokens / (2 * std::int64_t{zigzag});
  std::vector<Interval> runs;
  for (std::int64_t at = indices.begin; at < indices.end;) {
    const std::int64_t end = std::min(indices.end, (at / each + 1) * each);
    const std::int64_t first = zigzag_position(at, tokens, zigzag);
    runs.push_back({first, first + end - at});
    at = end;
  }
  return runs;
}

/// Pairs of a query and a key that is not after it.
double causal_pairs(Interval queries, Interval keys) {
  // From the first query that sees a key on, and from the first one that sees all of them.
  const std::int64_t some = std::clamp(keys.begin, queries.begin, queries.end);
  const std::int64_t all = std::clamp(keys.end - 1, some, queries.end);
  const auto rising = static_cast<double>(all - some);
  const double seen =
      rising * (static_cast<double>(some + all + 1) / 2 - static_cast<double>(keys.begin));
  return seen + static_cast<double>((queries.end - all) * keys.size());
}

/// Pairs of a query and a key that it sees under a causal mask.
double pairs_of(Interval queries, Interval keys, std::int64_t window) {
  const double all = causal_pairs(queries, keys);
  if (window == 0) return all;
  return all - causal_pairs({queries.begin - window, queries.end - window}, keys);
}

/// Pairs of a query of a part and a key that it sees: with a causal mask those up to the query's
/// own position, with a window the last of these.
double pairs_read(const Attention& kind, Shapes in, const Part& part) {
  const std::int64_t tokens = in[1].axes[0].extent;
  const Interval queries = part.out[1];
  const Interval keys = part.contraction.empty() ? Interval{0, tokens} : part.contraction;
  if (!kind.causal) return static_cast<double>(queries.size() * keys.size());
  if (part.zigzag == 0) return pairs_of(queries, keys, kind.window);
  double pairs = 0;
  for (const Interval some : runs_of(queries, tokens, part.zigzag)) {
    for (const Interval read : runs_of(keys, tokens, part.zigzag)) {
      pairs += pairs_of(some, read, kind.window);
    }
  }
  return pairs;
}

}  // namespace

Shape output_shape(const Attention& kind, Shapes in, std::string_view where) {
  expect_inputs(in, 3, where);
  bool fits = kind.heads > 0 && kind.key_heads > 0 && kind.heads % kind.key_heads == 0;
  for (const Shape& shape : in) fits = fits && shape.axes.size() == 2;
  fits = fits && in[0].axes[1].extent % kind.heads == 0 &&
         in[1].axes[1].extent == head_width(kind, in[0]) * kind.key_heads &&
         in[1].axes[0].extent == in[2].axes[0].extent &&
         in[2].axes[1].extent % kind.key_heads == 0 &&
         (!kind.causal || in[0].axes[0].extent == in[1].axes[0].extent) &&
         (kind.window == 0 || (kind.window > 0 && kind.causal));
  if (!fits) {
    throw InputError(where,
                     fmt::format("{} heads over {} keys of shapes {}, {}, {}", kind.heads,
                                 kind.key_heads, to_text(in[0]), to_text(in[1]), to_text(in[2])),
                     "queries are tokens × (heads · width), keys tokens × (key heads · width), "
                     "values tokens × (key heads · their width), with as many tokens if causal; "
                     "key heads divide heads; only causal attention has a window");
  }
  Shape out = in[0];
  out.axes[1].extent = kind.heads * value_width(kind, in[2]);
  return out;
}

Region input_region(const Attention& kind, Shapes in, const Shape&, std::size_t input,
                    const Part& part) {
  const Interval channels = part.out[2];
  if (part.out.empty()) return {part.out[0], {}, {}};
  const std::int64_t width = head_width(kind, in[0]), made = value_width(kind, in[2]);
  const Interval heads{channels.begin / made, (channels.end + made - 1) / made};
  if (input == 0) return {part.out[0], part.out[1], {heads.begin * width, heads.end * width}};
  const std::int64_t group = kind.heads / kind.key_heads;
  const Interval keys{heads.begin / group, (heads.end + group - 1) / group};
  // A causal mask hides what comes after the part's last token. In zigzag order that is near the
  // end for every part.
  const bool hides = kind.causal && part.zigzag == 0;
  Interval tokens{0, hides ? part.out[1].end : in[1].axes[0].extent};
  if (hides && kind.window > 0) {
    tokens.begin = std::max<std::int64_t>(0, part.out[1].begin + 1 - kind.window);
  }
  if (!part.contraction.empty()) tokens = part.contraction;
  const std::int64_t each = input == 1 ? width : made;
  return {part.out[0], tokens, {keys.begin * each, keys.end * each}};
}

/// Scores, along the whole width of every head that the part has channels of, and their product
/// with the values.
Flops forward_flops(const Attention& kind, Shapes in, const Shape& out, const Part& part) {
  if (part.out.empty()) return {};
  const auto scored = static_cast<double>(input_region(kind, in, out, 0, part).volume());
  const double channels =
      (scored + static_cast<double>(part.out.volume())) / static_cast<double>(part.out[1].size());
  return {2 * channels * pairs_read(kind, in, part)};
}

Shape output_shape(const HeadConcat& kind, Shapes in, std::string_view where) {
  expect_inputs(in, 2, where);
  const bool fits = kind.heads > 0 && in[0].axes.size() == 2 && in[1].axes.size() == 2 &&
                    in[0].axes[0].extent == in[1].axes[0].extent &&
                    in[0].axes[1].extent % kind.heads == 0;
  if (!fits) {
    throw InputError(
        where,
        fmt::format("{} heads of shapes {} and {}", kind.heads, to_text(in[0]), to_text(in[1])),
        "inputs are tokens × (heads · width) and tokens × shared channels");
  }
  Shape out = in[0];
  out.axes[1].extent += kind.heads * in[1].axes[1].extent;
  return out;
}

Region input_region(const HeadConcat& kind, Shapes in, const Shape&, std::size_t input,
                    const Part& part) {
  if (part.out.empty()) return {part.out[0], {}, {}};
  const std::int64_t own = in[0].axes[1].extent / kind.heads, shared = in[1].axes[1].extent;
  const std::int64_t both = own + shared;
  const std::int64_t first = part.out[2].begin / both, last = (part.out[2].end - 1) / both;
  // Of the first head from here, of the last one up to there.
  const std::int64_t begin = part.out[2].begin - first * both, end = part.out[2].end - last * both;
  Interval read{first * own + std::min(begin, own), last * own + std::min(end, own)};
  if (input == 1) {
    read = {0, shared};
    if (first == last) {
      read = {std::max<std::int64_t>(begin - own, 0), std::max<std::int64_t>(end - own, 0)};
    } else if (first + 1 == last && end <= own) {
      read.begin = std::max<std::int64_t>(begin - own, 0);
    }
  }
  return {part.out[0], part.out[1], read.empty() ? Interval{} : read};
}

}  // namespace parsim::layers
