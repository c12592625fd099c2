// The GPUs that a trainer's hostfile lists.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/cluster.hpp"

namespace parsim::experiment {

/// The file `hostfile` in the folder of `file`, or above its conf/train, if there is one.
[[nodiscard]] std::optional<std::string> hostfile_of(const std::string& file);

/// The GPUs of the hostfile: machine after
/// machine "NAME slots=8", its first GPUs, or those of "# gpus 4,5". Without such a file all GPUs
/// of the cluster. Throws InputError with file:line for a machine that the cluster does not have,
/// one named twice, and for more GPUs than it has.
[[nodiscard]] std::vector<DeviceId> devices_of_hosts(const std::string& file,
                                                     const Cluster& cluster);

}  // namespace parsim::experiment
