// The numbers of a run: training data, labels and weights before the step, by formula, so that a
// DAG file is all that a run needs and every device makes the same ones. tests/support/numeric.cpp
// has the same formulas in float64; tests/hw compares them.
#pragma once

#include <bit>
#include <cstdint>

#include "core/random.hpp"
#include "hw/math/view.hpp"

namespace parsim::hw {

/// Uniform in (-1, 1): SplitMix64's finalizer over three numbers.
[[nodiscard]] constexpr double noise(std::uint64_t stream, std::uint64_t a, std::uint64_t b,
                                     std::uint64_t c) {
  std::uint64_t state = stream;
  const std::uint64_t words[] = {a, b, c};
  for (const std::uint64_t word : words) state = splitmix64(state + word + splitmix64_step);
  return (static_cast<double>(state >> 11U) + 0.5) * 0x1p-52 - 1.0;
}

/// Class of a sample of the global batch. 7 and 3 have no factor in common with small class counts,
/// so that labels are not in step with the cuts of a batch.
[[nodiscard]] constexpr std::int64_t label(std::int64_t sample, std::int64_t classes) {
  return (7 * sample + sample * sample / 3 + 3) % classes;
}

/// Learning rate of numeric checks.
inline constexpr double learning_rate = 0.1;
/// Adam's epsilon. With the usual 1e-8 the step of a gradient near 0 is the sign of its rounding
/// error, which no check could compare; it takes the same time.
inline constexpr double adam_epsilon = 1e-2;
/// Weights before the step lie in (-this, this).
inline constexpr double weight_amplitude = 0.7;

/// To eight bits of mantissa, half to even.
[[nodiscard]] constexpr float to_bf16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return std::bit_cast<float>((bits + 0x7fffU + (bits >> 16U & 1U)) & 0xffff0000U);
}

/// Fills a box with data (stream 1, sample counted over the global batch) or weights (stream 2).
template <class T>
struct Fill {
  Loops loops;
  View<T> to;
  std::int32_t extent[most_axes] = {1, 1, 1, 1, 1, 1};  ///< of the whole tensor
  std::uint64_t stream = 1, number = 0;  ///< 1 and the Input layer, or 2 and the parameter
  std::int64_t first_sample = 0;
  double amplitude = 1;
  bool rounds = false;  ///< to bf16, which fp16 has too, so that tokens are the same in every type

  constexpr void operator()(std::uint32_t i) const {
    const Index index = loops.index(i);
    std::int64_t element = 0;
    for (int a = stream == 1 ? 1 : 0; a < most_axes; ++a) {
      element = element * extent[a] + index.at[a];
    }
    const std::int64_t sample = stream == 1 ? first_sample + index.at[0] : 0;
    const double value = amplitude * noise(stream, number, static_cast<std::uint64_t>(sample),
                                           static_cast<std::uint64_t>(element));
    to(index) = static_cast<T>(rounds ? static_cast<Wide<T>>(to_bf16(static_cast<float>(value)))
                                      : static_cast<Wide<T>>(value));
  }
};

}  // namespace parsim::hw
