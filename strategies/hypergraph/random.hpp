// A small generator whose numbers are the same on every machine.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace parsim::hypergraph {

/// SplitMix64 (Steele, Lea, Flood 2014).
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  [[nodiscard]] std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  /// 0 to n-1; n is positive. The bias for n far below 2^64 is nothing to a search.
  [[nodiscard]] std::size_t below(std::size_t n) { return static_cast<std::size_t>(next() % n); }
  template <class Item>
  void shuffle(std::vector<Item>& items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  std::uint64_t state_;
};

}  // namespace parsim::hypergraph
