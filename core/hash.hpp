// Hashes of bytes and of whole numbers, equal on every machine. None of them keeps out forgery.
#pragma once

#include <concepts>
#include <cstdint>
#include <string_view>

namespace parsim {

/// FNV-1a of bytes. Source: Fowler, Noll & Vo, draft-eastlake-fnv.
[[nodiscard]] constexpr std::uint64_t fnv1a(std::string_view bytes) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // the offset basis
  for (const char c : bytes) {
    hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;  // the FNV prime
  }
  return hash;
}

/// The hash of a sequence of numbers of hash `seed`, followed by `values`. For keys of hash tables.
[[nodiscard]] constexpr std::uint64_t hash_combine(std::uint64_t seed,
                                                   std::integral auto... values) {
  const auto append = [&](std::uint64_t value) {
    seed = (seed ^ value) * 0x9e3779b97f4a7c15ULL;  // golden ratio
    seed ^= seed >> 29U;
  };
  (append(static_cast<std::uint64_t>(values)), ...);
  return seed;
}

/// The hash of a list of whole numbers.
template <class Numbers>
[[nodiscard]] constexpr std::uint64_t hash_of(const Numbers& numbers) {
  std::uint64_t hash = numbers.size();
  for (const std::integral auto number : numbers) hash = hash_combine(hash, number);
  return hash;
}

}  // namespace parsim
