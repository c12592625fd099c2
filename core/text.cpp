#include "core/text.hpp"

#include <fmt/format.h>

#include <cmath>

namespace parsim {

std::string three_digits(double value) {
  if (std::isnan(value)) return "-";
  if (value == 0.0) return "0";
  // Rounding first, so that 9.996 becomes 10.0 and not 10.00.
  const double magnitude = std::abs(value);
  if (magnitude < 1e-4) return fmt::format("{:.2e}", value);
  int decimals = 0;
  for (double limit = 99.95; magnitude < limit && decimals < 6; limit /= 10) ++decimals;
  return fmt::format("{:.{}f}", value, decimals);
}

}  // namespace parsim
