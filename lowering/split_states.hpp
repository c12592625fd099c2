// When weights and gradients that are split among devices (ZeRO's stages 2 and 3) are whole. A unit
// is what travels together: weights are gathered just ahead of their use, while the unit before
// computes; gradients are scattered while the next unit computes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "lowering/recompute.hpp"
#include "lowering/sync.hpp"

namespace parsim {

/// Units by turn, each once.
using UnitsByTurn = std::vector<std::vector<std::size_t>>;

/// What of some groups the turns use: their numbers by turn.
///
/// units   numbers in `groups` of those that count
[[nodiscard]] UnitsByTurn units_by_turn(std::span<const Turn> turns,
                                        const std::vector<SyncGroup>& groups,
                                        std::span<const std::size_t> units);

/// The same of what gets gradients: turns on the way back only.
[[nodiscard]] UnitsByTurn filled_by_turn(std::span<const Turn> turns,
                                         const std::vector<SyncGroup>& groups,
                                         std::span<const std::size_t> units);

/// Groups of the stage of ZeRO, or a later one, by the devices that share them: those of one list
/// have the same devices and take room from each other.
[[nodiscard]] std::vector<std::vector<std::size_t>> split_together(
    const std::vector<SyncGroup>& groups, std::int32_t zero_stage);

/// Whether gradients that are split are scattered after every micro-batch, and whole only on the
/// way there: fully sharded data parallelism does so outside no_sync (PyTorch,
/// torch/distributed/fsdp: the hook after backward; Composer enters no_sync for DDP only), and so
/// do DeepSpeed's stages 2 and 3 (issue 2252 of its repository). In a pipeline they stay whole
/// until the last micro-batch (torch/distributed/pipelining/stage.py, backward_maybe_with_nosync).
[[nodiscard]] bool scatters_each_micro_batch(const Schedule& schedule);

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
/// there   units in memory before the first turn, older first; afterwards those after the last
///
/// This is what fully sharded data parallelism does with prefetching and a limit of two units
/// (Zhao et al. 2023, "PyTorch FSDP", sections 3.3 and 3.4).
[[nodiscard]] std::vector<WeightGather> weight_gathers(const UnitsByTurn& needs,
                                                       std::vector<std::size_t>& there);

/// The most bytes that are whole at a time on the way there and back, by the gathers above.
///
/// bytes   by unit
[[nodiscard]] std::int64_t most_gathered(const UnitsByTurn& forward, const UnitsByTurn& backward,
                                         const std::vector<std::int64_t>& bytes);

/// A unit of gradients whose first kernel waits until another one is scattered.
struct GradientRoom {
  std::size_t turn = 0, unit = 0;
  std::size_t instead = 0;
  friend bool operator==(const GradientRoom&, const GradientRoom&) = default;
};
/// Two units are whole at a time: one is filled, the one before it on its way. Only what is filled
/// for longer (a tensor of two layers far apart) adds to that, because nobody can wait for it.
///
/// filled   by turn: units that get gradients
[[nodiscard]] std::vector<GradientRoom> gradient_rooms(const UnitsByTurn& filled);
/// The most bytes that are whole at a time.
[[nodiscard]] std::int64_t most_filled(const UnitsByTurn& filled,
                                       const std::vector<std::int64_t>& bytes);

}  // namespace parsim
