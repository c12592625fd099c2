// What the host of a machine reads for a step.
#pragma once

#include <compare>
#include <cstdint>

namespace parsim {

/// Samples that the devices of a machine read in a step, each once.
struct MachineReads {
  std::int64_t devices = 0;  ///< that read
  std::int64_t samples = 0;
  friend auto operator<=>(const MachineReads&, const MachineReads&) = default;
};

}  // namespace parsim
