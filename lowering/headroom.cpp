#include "lowering/headroom.hpp"

#include <algorithm>
#include <cmath>

namespace parsim::lowering {

Bytes Headroom::of(Bytes memory) const {
  if (bytes) return std::min(*bytes, memory);
  return {std::llround(share * static_cast<double>(memory.value))};
}

Verdict Headroom::verdict(Bytes needed, Bytes memory) const {
  constexpr double nearly_full = 0.9;
  const Bytes there = usable(memory);
  if (needed > there) return Verdict::over;
  const double part = static_cast<double>(needed.value) / static_cast<double>(there.value);
  return needed.value > 0 && part > nearly_full ? Verdict::tight : Verdict::fits;
}

}  // namespace parsim::lowering
