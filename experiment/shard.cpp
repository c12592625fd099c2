#include "experiment/shard.hpp"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include "core/errors.hpp"
#include "core/text.hpp"

namespace parsim::experiment {

namespace {

using Variables = std::function<std::optional<std::string>(const char* name)>;

std::int64_t number_in(const Variables& variable, const char* name, std::int64_t least) {
  constexpr std::int64_t most = 4'294'967'295;  // Slurm's ids
  const std::optional<std::string> text = variable(name);
  if (!text) {
    throw InputError(name, "not set, although others of its launcher are",
                     "accepted: --shard I/N instead");
  }
  return parse_whole(*text, name, least, most);
}

/// `index` of `count`, both from variables.
Shard checked(std::int64_t index, std::int64_t count, const char* index_name) {
  if (count > static_cast<std::int64_t>(most_shards) || index >= count) {
    throw InputError(
        index_name, fmt::format("{} of {}", index, count),
        fmt::format("accepted: less than the number of processes, at most {}", most_shards));
  }
  return {static_cast<std::size_t>(index), static_cast<std::size_t>(count), index_name};
}

}  // namespace

Shard parse_shard(const std::string& text) {
  const std::size_t slash = text.find('/');
  if (slash == std::string::npos) {
    throw InputError("--shard", fmt::format("'{}'", text), "accepted: I/N, as in 1/4");
  }
  const std::string_view all = text;
  const auto most = static_cast<std::int64_t>(most_shards);
  const std::int64_t count = parse_whole(all.substr(slash + 1), "--shard", 1, most);
  const std::int64_t index = parse_whole(all.substr(0, slash), "--shard", 1, count);
  return {static_cast<std::size_t>(index - 1), static_cast<std::size_t>(count), "--shard"};
}

Shard shard_of_environment(const Variables& variable) {
  Shard process;
  // Open MPI first: its daemons, started by srun, hand Slurm's variables on.
  constexpr std::pair<const char*, const char*> launchers[] = {
      {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
      {"PMI_RANK", "PMI_SIZE"},
      {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS"}};
  for (const auto& [rank, size] : launchers) {
    if (!variable(size)) continue;
    process = checked(number_in(variable, rank, 0), number_in(variable, size, 1), rank);
    break;
  }
  if (!variable("SLURM_ARRAY_TASK_ID") || !variable("SLURM_ARRAY_TASK_COUNT")) return process;
  const auto or_else = [&](const char* name, std::int64_t fallback, std::int64_t least) {
    return variable(name) ? number_in(variable, name, least) : fallback;
  };
  const std::int64_t id = number_in(variable, "SLURM_ARRAY_TASK_ID", 0);
  const std::int64_t count = number_in(variable, "SLURM_ARRAY_TASK_COUNT", 1);
  const std::int64_t first = or_else("SLURM_ARRAY_TASK_MIN", 0, 0);
  const std::int64_t step = or_else("SLURM_ARRAY_TASK_STEP", 1, 1);
  if (id < first) {
    throw InputError("SLURM_ARRAY_TASK_ID", fmt::format("{} below {}", id, first),
                     "accepted: SLURM_ARRAY_TASK_MIN or more");
  }
  const Shard task = checked((id - first) / step, count, "SLURM_ARRAY_TASK_ID");
  Shard both{task.index * process.count + process.index, task.count * process.count,
             process.source.empty() ? task.source : task.source + " and " + process.source};
  if (both.count > most_shards) {
    throw InputError("SLURM_ARRAY_TASK_COUNT", fmt::format("{} shards in all", both.count),
                     fmt::format("accepted: at most {}", most_shards));
  }
  return both;
}

}  // namespace parsim::experiment
