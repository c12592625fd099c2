// Tables that are built into the program, by path.
#pragma once

#include <string_view>

#include "core/csv.hpp"

namespace parsim::sim {

/// Throws BrokenInvariant if there is no such file.
///
/// path   from the repository's root: "sim/coefficients.csv"
[[nodiscard]] CsvTable embedded_table(std::string_view path);

}  // namespace parsim::sim
