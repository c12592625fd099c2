// Whether partitions of a GPU are what they say: seen by running kernels that note where they run.
#pragma once

#include "hw/cuda/devices.hpp"

namespace parsim::hw {

/// Throws HardwareError if a partition's kernels run on more multiprocessors than it has, or on
/// another one's. Returns whether they keep to theirs when a graph is made of them, too.
[[nodiscard]] bool graphs_keep_partitions(const CudaDevices& devices);

}  // namespace parsim::hw
