#include "hw/launch.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <vector>

#include "core/errors.hpp"

namespace parsim::hw {

namespace {

struct Launcher {
  const char* name;
  const char* rank;
  const char* size;
  const char* local_rank;
};
constexpr std::array<Launcher, 3> launchers{
    {{"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
     {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
     {"Slurm", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"}}};
constexpr int most_processes = 1 << 20;

int number(const std::string& name, const std::string& text, int least, int most) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size() || value < least || value > most) {
    throw InputError(name, fmt::format("'{}'", text),
                     fmt::format("accepted: a whole number from {} to {}", least, most));
  }
  return value;
}

std::optional<Launch> launched_by(const Launcher& launcher, const Environment& environment) {
  const auto rank = environment(launcher.rank);
  const auto size = environment(launcher.size);
  // A job's size without a rank in it is an allocation, or an exported variable.
  if (!rank) {
    if (!size || *size == "1" || launcher.name == launchers[2].name) return std::nullopt;
    throw InputError(launcher.rank, "missing",
                     fmt::format("{} is {}; {} sets both", launcher.size, *size, launcher.name));
  }
  const auto local_rank = environment(launcher.local_rank);
  for (const auto& [name, text] :
       {std::pair{launcher.size, size}, std::pair{launcher.local_rank, local_rank}}) {
    if (text) continue;
    throw InputError(name, "missing",
                     fmt::format("{} is {}; {} sets both", launcher.rank, *rank, launcher.name));
  }
  Launch launch;
  launch.by = launcher.name;
  launch.size = number(launcher.size, *size, 1, most_processes);
  launch.rank = number(launcher.rank, *rank, 0, launch.size - 1);
  launch.local_rank = number(launcher.local_rank, *local_rank, 0, launch.rank);
  return launch;
}

}  // namespace

std::optional<std::string> environment_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

Launch launch_from(const Environment& environment) {
  std::optional<Launch> launch;
  for (const Launcher& launcher : launchers) {
    if (launch && launcher.name == launchers[2].name) break;
    const std::optional<Launch> one = launched_by(launcher, environment);
    if (!one) continue;
    if (launch && (launch->rank != one->rank || launch->size != one->size)) {
      throw InputError(launcher.size,
                       fmt::format("{} says process {} of {}, {} says {} of {}", launch->by,
                                   launch->rank, launch->size, one->by, one->rank, one->size),
                       "accepted: processes started by one of the two");
    }
    if (!launch) launch = one;
  }
  if (!launch) return {};
  launch->address = environment("MASTER_ADDR").value_or(launch->address);
  if (const auto port = environment("MASTER_PORT")) {
    launch->port = number("MASTER_PORT", *port, 1, 65535);
  }
  // torchrun's own store listens at that port while its processes run.
  if (environment("TORCHELASTIC_USE_AGENT_STORE").value_or("") == "True") {
    launch->port += launch->port < 65535 ? 1 : -1;
  }
  return *launch;
}

void check_size(const Launch& launch, int devices) {
  if (launch.size == 1 || launch.size == devices) return;
  throw InputError(launch.by,
                   fmt::format("started {} processes, and the largest plan uses {} device{}",
                               launch.size, devices, devices == 1 ? "" : "s"),
                   "accepted: one process for each device, or one for all");
}

}  // namespace parsim::hw
