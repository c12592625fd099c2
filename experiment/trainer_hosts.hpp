// The GPUs that a trainer's hostfile lists.
#pragma once

#include <string>
#include <vector>

#include "core/cluster.hpp"

namespace parsim::experiment {

/// The GPUs of the file `hostfile` in the folder of `file`, or above its conf/train: machine after
/// machine "NAME slots=8", its first GPUs, or those of "# gpus 4,5". Without such a file all GPUs
/// of the cluster. Throws InputError with file:line for a machine that the cluster does not have,
/// one named twice, and for more GPUs than it has.
[[nodiscard]] std::vector<DeviceId> devices_of_hosts(const std::string& file,
                                                     const Cluster& cluster);

}  // namespace parsim::experiment
