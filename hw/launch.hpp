// Who started this process, and as which of how many: what torchrun, Open MPI and Slurm tell their
// processes by environment variables.
#pragma once

#include <functional>
#include <optional>
#include <string>

namespace parsim::hw {

struct Launch {
  std::string by;  ///< "torchrun", "Open MPI", "Slurm", or "": none, one process
  int rank = 0, size = 1;
  int local_rank = 0;                 ///< among the processes of this machine: the GPU to take
  std::string address = "127.0.0.1";  ///< where rank 0 can be reached
  int port = 29500;                   ///< torchrun's default
  friend bool operator==(const Launch&, const Launch&) = default;
};

/// What an environment variable says; nothing if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
/// The variables of this process.
[[nodiscard]] std::optional<std::string> environment_variable(const std::string& name);

/// RANK, WORLD_SIZE and LOCAL_RANK; OMPI_COMM_WORLD_RANK, _SIZE and _LOCAL_RANK; or SLURM_PROCID,
/// SLURM_NTASKS and SLURM_LOCALID; with MASTER_ADDR and MASTER_PORT (the next one, where torchrun's
/// own store is at that port). Slurm's variables count only where neither of the others set theirs,
/// because their processes often run inside its jobs. Throws InputError if one of the three is
/// missing, if one is no number in its range, or if torchrun and Open MPI do not agree.
[[nodiscard]] Launch launch_from(const Environment& environment);

/// Throws InputError unless there is one process for each device of the largest plan: smaller ones
/// leave some without work.
void check_size(const Launch& launch, int devices);

}  // namespace parsim::hw
