// A measured time with its spread.
#pragma once

#include <cstdint>
#include <vector>

#include "core/units.hpp"

namespace parsim {

/// A measured time never travels without its spread. With fewer than five samples low and high are
/// the median.
struct Spread {
  Seconds median{}, low{}, high{};  ///< low, high: quartiles
  std::int64_t samples = 0;
  friend bool operator==(const Spread&, const Spread&) = default;
};
/// `times` must not be empty.
[[nodiscard]] Spread spread_of(std::vector<Seconds> times);

}  // namespace parsim
