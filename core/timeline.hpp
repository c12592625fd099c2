// Start and end of every operation. Both engines produce it.
#pragma once

#include <vector>

#include "core/exec_dag.hpp"
#include "core/units.hpp"

namespace parsim {

struct Span {
  Seconds start{}, end{};
  friend bool operator==(const Span&, const Span&) = default;
};

struct Timeline {
  std::vector<Span> spans;  ///< by OpId
  std::vector<double>
      hop_bytes;  ///< bytes carried by every directed link, by Hop::index(); empty if not known
  /// Bytes that links did not carry because a collective ran over trees or was reduced in switches.
  /// Added to the bytes carried, it gives those of ring algorithms.
  double bytes_reduced_in_network = 0;
  /// Operations that were not simulated, because they are equal to one that was.
  std::int64_t merged_operations = 0;
  bool chose_fast_engine = false;  ///< Engine::automatic chose the fast engine
  friend bool operator==(const Timeline&, const Timeline&) = default;
};

/// End of the last operation; 0 for an empty timeline.
[[nodiscard]] Seconds makespan(const Timeline& timeline);

/// How a device spends the step. The three times add up to the makespan.
struct DeviceUse {
  Seconds compute{};                ///< a kernel (compute, update, local, delay) runs
  Seconds exposed_communication{};  ///< a transfer or collective of the device runs, but no kernel
  Seconds idle{};
};
/// By device id, for `devices` devices.
[[nodiscard]] std::vector<DeviceUse> device_use(const ExecDag& dag, const Timeline& timeline,
                                                std::size_t devices);

}  // namespace parsim
