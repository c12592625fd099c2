// When weights that are split among devices (ZeRO's stage 3) are gathered: a unit just ahead of its
// use, while the one before it computes.
#pragma once

#include <cstddef>
#include <vector>

namespace parsim {

/// Units of weights by number.
struct WeightGather {
  std::size_t turn = 0;  ///< goes out before this turn
  std::size_t unit = 0;
  std::vector<std::size_t> instead;  ///< units whose room it takes: they are no longer used
  friend bool operator==(const WeightGather&, const WeightGather&) = default;
};

/// What to gather so that every turn has its units: as early as possible, in the order of need,
/// with two units in memory, more only for a turn that needs more. The unit that was used least
/// recently makes room.
///
/// needs   by turn: units, each once
/// there   units in memory before the first turn, older first; afterwards those after the last
///
/// This is what fully sharded data parallelism does with prefetching and a limit of two units
/// (Zhao et al. 2023, "PyTorch FSDP", sections 3.3 and 3.4).
[[nodiscard]] std::vector<WeightGather> weight_gathers(
    const std::vector<std::vector<std::size_t>>& needs, std::vector<std::size_t>& there);

}  // namespace parsim
