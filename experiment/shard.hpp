// Which part of a sweep this process computes: as asked, or as the launcher's variables say.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>

namespace parsim::experiment {

struct Shard {
  std::size_t index = 0;  ///< from 0
  std::size_t count = 1;
  std::string source;  ///< "--shard", "SLURM_PROCID", …; "" if nothing divides the sweep

  /// Points go round: neighbours cost alike, so that shards take equally long.
  [[nodiscard]] bool has(std::size_t point) const { return point % count == index; }
};

constexpr std::size_t most_shards = 100'000;

/// "I/N", I from 1 to N. Throws InputError for anything else.
[[nodiscard]] Shard parse_shard(const std::string& text);

/// The shard that the environment names. Processes: Open MPI's variables, those of PMI (MPICH,
/// Intel MPI), or Slurm's in a step (srun); a batch script is no process of a step. Slurm arrays:
/// the task's position between SLURM_ARRAY_TASK_MIN and the array's size. An array of steps is
/// divided by both. Throws InputError for a number that is none or out of range.
///
/// variable   the value of an environment variable, nothing if it is not set
[[nodiscard]] Shard shard_of_environment(
    const std::function<std::optional<std::string>(const char* name)>& variable);

}  // namespace parsim::experiment
