// Shapes of tensors: axes with a meaning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/region.hpp"
#include "core/spelling.hpp"

namespace parsim {

/// What an axis of a tensor means, and what a cut may run along.
enum class Dim : std::uint8_t {
  sample,
  channel,
  depth,
  height,
  width,
  token,
  head,
  expert,
  in_channel,  ///< the contraction of a Conv, Dense or Embedding: parts hold partial sums of the
               ///< output
  replica,     ///< every part computes the same
  other,       ///< an axis without a role of its own (inside reshapes); never cut
};
constexpr std::array<std::string_view, 11> spellings(Dim) {
  return {"sample", "channel", "depth",      "height",  "width", "token",
          "head",   "expert",  "in_channel", "replica", "other"};
}

struct Axis {
  Dim dim = Dim::other;
  std::int64_t extent = 0;
  friend bool operator==(const Axis&, const Axis&) = default;
};

/// Extents of a layer's output for ONE sample, outermost axis first: channel × height × width,
/// token × channel, ... The sample axis is not part of it; in a Region it is axis 0.
struct Shape {
  std::vector<Axis> axes;

  [[nodiscard]] std::int64_t elements() const;
  /// Position of the first axis with `dim`, counted in a Region (sample = 0); 0 if there is none.
  [[nodiscard]] std::size_t region_axis(Dim dim) const;
  /// Extent of the first axis with `dim`, 0 if there is none.
  [[nodiscard]] std::int64_t extent(Dim dim) const;
  friend bool operator==(const Shape&, const Shape&) = default;
};
/// "64x112x112".
[[nodiscard]] std::string to_text(const Shape& shape);
/// Shapes in the usual orders: channel; channel × height × width; channel × depth × height × width.
[[nodiscard]] Shape vector_shape(std::int64_t channels);
[[nodiscard]] Shape image_shape(std::int64_t channels, std::int64_t height, std::int64_t width);
[[nodiscard]] Shape volume_shape(std::int64_t channels, std::int64_t depth, std::int64_t height,
                                 std::int64_t width);
/// The whole output for `samples` samples as a box.
[[nodiscard]] Region whole(const Shape& shape, std::int64_t samples);

}  // namespace parsim
