// Colours of operations, flows and links: what merging compares.
#pragma once

#include <bit>
#include <cstdint>

#include "core/random.hpp"
#include "sim/slowdowns.hpp"

namespace parsim::sim {

/// Hash of all known properties of a member of a class; equal only for equal members.
using Color = std::uint64_t;

[[nodiscard]] constexpr Color mix(Color a, Color b) {
  return splitmix64(a * splitmix64_step + b + 0xd1b54a32d192ed03ULL);
}
[[nodiscard]] inline Color mix(Color a, Seconds b) {
  return mix(a, std::bit_cast<Color>(b.count()));
}
[[nodiscard]] inline Color mix(Color a, double b) { return mix(a, std::bit_cast<Color>(b)); }

[[nodiscard]] inline Color color_of(const SlowPeriods& slow) {
  Color color = 0;
  for (const SlowPeriod& period : slow.periods()) {
    color = mix(mix(mix(color, period.from), period.to), period.factor);
  }
  return color;
}

}  // namespace parsim::sim
