#include "sim/jitter.hpp"

#include <cmath>
#include <cstdint>
#include <numbers>

#include "core/random.hpp"

namespace parsim {

namespace {

/// In (0, 1).
double uniform(std::uint64_t bits) { return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53; }

}  // namespace

double jitter_factor(const Jitter& jitter, OpId op) {
  if (jitter.relative <= 0) return 1;
  constexpr std::uint64_t step = splitmix64_step;
  const std::uint64_t key =
      splitmix64(jitter.seed * step + static_cast<std::uint64_t>(op.value) + 1);
  const double u = uniform(splitmix64(key + step)), v = uniform(splitmix64(key + 2 * step));
  // Box and Muller 1958.
  const double normal = std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
  const double variance = std::log1p(jitter.relative * jitter.relative);
  return std::exp(std::sqrt(variance) * normal - variance / 2);
}

}  // namespace parsim
