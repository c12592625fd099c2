// Memory whose rate several devices share.
#include <algorithm>
#include <limits>

#include "core/profile.hpp"

namespace parsim {

BytesPerSecond CommonMemory::rate() const {
  BytesPerSecond all{};
  for (const MemoryPart& part : parts) all.value += rate_together(part).value;
  return all;
}

bool CommonMemory::limits() const {
  return std::any_of(parts.begin(), parts.end(), [](const MemoryPart& part) {
    return part.together.low > part.alone.high && part.alone.median > Seconds{};
  });
}

double memory_level(std::span<const MemoryClaim> claims, double rate) {
  // Claims are met in the order of the level that each needs, as long as that leaves enough.
  std::vector<MemoryClaim> order(claims.begin(), claims.end());
  std::sort(order.begin(), order.end(), [](const MemoryClaim& a, const MemoryClaim& b) {
    return a.demand * b.weight < b.demand * a.weight;
  });
  double weight = 0;
  for (const MemoryClaim& claim : order) weight += claim.weight;
  for (const MemoryClaim& claim : order) {
    if (claim.demand * weight > rate * claim.weight) return rate / weight;
    rate -= claim.demand;
    weight -= claim.weight;
  }
  return std::numeric_limits<double>::infinity();
}

}  // namespace parsim
