// Of operations in classes the first of each runs: which these are, and what waits for them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/color.hpp"
#include "sim/prepared_dag.hpp"

namespace parsim::sim {

/// By operation: the first one of its colour.
[[nodiscard]] std::vector<std::int32_t> first_of_colors(std::span<const Color> colors);

/// Operations that run wait for those that run for whom they waited; others for none.
///
/// runs_as   by operation: the one that runs for it, which is no later
[[nodiscard]] Successors waits_of_runners(const Successors& all,
                                          std::span<const std::int32_t> runs_as);

}  // namespace parsim::sim
