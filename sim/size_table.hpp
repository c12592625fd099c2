// Measured times by size, with interpolation.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "core/units.hpp"

namespace parsim::sim {

/// Bytes to seconds.
using SizeTable = std::map<std::int64_t, Seconds>;

/// Between two entries log-log, below the first its time, above the last in proportion (at the
/// last's bandwidth). Nothing if the table is empty.
[[nodiscard]] std::optional<Seconds> interpolated(const SizeTable& table, Bytes size);

}  // namespace parsim::sim
