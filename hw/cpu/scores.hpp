// Attention's softmax over scores that lie row behind row.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace parsim::hw {

/// Scores of lines of tokens: rows of so many keys, of which a causal mask leaves token + 1, a
/// window (unless 0) the last ones of these.
struct ScoreRows {
  std::int64_t rows = 1, keys = 1, tokens = 1, first_token = 0;
  bool causal = false;
  std::int64_t window = 0;
  float scale = 1;

  [[nodiscard]] std::int64_t seen(std::int64_t row) const {
    return causal ? std::min(keys, first_token + row % tokens + 1) : keys;
  }
  [[nodiscard]] std::int64_t first(std::int64_t row) const {
    return window == 0 ? 0 : std::max<std::int64_t>(0, seen(row) - window);
  }
  /// Scores become weights.
  void softmax(float* scores) const {
#pragma omp parallel for schedule(static)
    for (std::int64_t r = 0; r < rows; ++r) {
      float* const row = scores + r * keys;
      const std::int64_t begin = first(r), end = seen(r);
      float top = row[begin];
      for (std::int64_t k = begin; k < end; ++k) top = std::max(top, row[k]);
      float sum = 0;
      for (std::int64_t k = begin; k < end; ++k) sum += row[k] = std::exp(scale * (row[k] - top));
      for (std::int64_t k = 0; k < keys; ++k) row[k] = k >= begin && k < end ? row[k] / sum : 0;
    }
  }
  /// Gradients of weights become those of the products before the scale.
  void backward(const float* weights, float* gradients) const {
#pragma omp parallel for schedule(static)
    for (std::int64_t r = 0; r < rows; ++r) {
      const float* const weight = weights + r * keys;
      float* const gradient = gradients + r * keys;
      float dot = 0;
      for (std::int64_t k = 0; k < keys; ++k) dot += weight[k] * gradient[k];
      for (std::int64_t k = 0; k < keys; ++k) gradient[k] = scale * weight[k] * (gradient[k] - dot);
    }
  }
};

}  // namespace parsim::hw
