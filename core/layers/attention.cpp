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

/// Keys of the queries of a part: with a causal mask those up to the last query's, and on average
/// half of the part's own.
double keys_read(const Attention& kind, Shapes in, const Part& part) {
  const auto keys = static_cast<double>(in[1].axes[0].extent);
  if (!kind.causal) return keys;
  return (static_cast<double>(part.out[1].begin + part.out[1].end) + 1) / 2;
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
         (!kind.causal || in[0].axes[0].extent == in[1].axes[0].extent);
  if (!fits) {
    throw InputError(where,
                     fmt::format("{} heads over {} keys of shapes {}, {}, {}", kind.heads,
                                 kind.key_heads, to_text(in[0]), to_text(in[1]), to_text(in[2])),
                     "queries are tokens × (heads · width), keys tokens × (key heads · width), "
                     "values tokens × (key heads · their width), with as many tokens if causal; "
                     "key heads divide heads");
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
  // A causal mask hides what comes after the part's last token.
  const std::int64_t tokens = kind.causal ? part.out[1].end : in[1].axes[0].extent;
  const std::int64_t each = input == 1 ? width : made;
  return {part.out[0], {0, tokens}, {keys.begin * each, keys.end * each}};
}

/// Scores, along the whole width of every head that the part has channels of, and their product
/// with the values.
Flops forward_flops(const Attention& kind, Shapes in, const Shape& out, const Part& part) {
  if (part.out.empty()) return {};
  const auto scored = static_cast<double>(input_region(kind, in, out, 0, part).volume());
  return {2 * (scored + static_cast<double>(part.out.volume())) * keys_read(kind, in, part)};
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
