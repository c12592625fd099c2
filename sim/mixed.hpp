// Numbers that look unrelated, for seeds and colours.
#pragma once

#include <cstdint>

namespace parsim {

/// SplitMix64's mixer (Steele, Lea and Flood 2014): neighbouring ids and seeds become unrelated.
[[nodiscard]] constexpr std::uint64_t mixed(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

}  // namespace parsim
