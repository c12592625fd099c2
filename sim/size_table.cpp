#include "sim/size_table.hpp"

#include <cmath>
#include <iterator>

namespace parsim::sim {

std::optional<Seconds> interpolated(const SizeTable& table, Bytes size) {
  if (table.empty()) return std::nullopt;
  const auto above = table.lower_bound(size.value);
  if (above == table.begin()) return above->second;
  const auto below = std::prev(above);
  if (above == table.end()) {
    const double ratio =
        below->first > 0 ? static_cast<double>(size.value) / static_cast<double>(below->first) : 1;
    return below->second * ratio;
  }
  if (above->first == size.value || below->first <= 0) return above->second;
  const double share =
      std::log(static_cast<double>(size.value) / static_cast<double>(below->first)) /
      std::log(static_cast<double>(above->first) / static_cast<double>(below->first));
  return below->second * std::pow(above->second / below->second, share);
}

}  // namespace parsim::sim
