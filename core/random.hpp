// Random numbers that are the same on every machine.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace parsim {

/// SplitMix64's finalizer (Steele, Lea and Flood 2014): neighbouring ids and seeds become
/// unrelated.
[[nodiscard]] constexpr std::uint64_t splitmix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}
/// What its generator adds to its state for each number: 2^64 over the golden ratio.
inline constexpr std::uint64_t splitmix64_step = 0x9e3779b97f4a7c15ULL;

/// The generator SplitMix64.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  [[nodiscard]] std::uint64_t next() { return splitmix64(state_ += splitmix64_step); }
  /// 0 to n-1; n is positive. The bias for n far below 2^64 is nothing to a search.
  [[nodiscard]] std::size_t below(std::size_t n) { return static_cast<std::size_t>(next() % n); }
  template <class Item>
  void shuffle(std::vector<Item>& items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  std::uint64_t state_;
};

}  // namespace parsim
