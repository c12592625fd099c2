// What happened: start and end of every operation. The last of the five values; both engines make
// it.
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
  /// What collectives did not have to carry because they run over trees, or because switches add
  /// up: with it, delivered bytes are those of rings.
  double spared_bytes = 0;
  /// Operations that were not simulated, because they are equal to one that was.
  std::int64_t merged_operations = 0;
  bool chose_fast_engine = false;  ///< the simulator was free to, and did
  friend bool operator==(const Timeline&, const Timeline&) = default;
};

/// End of the last operation; 0 for an empty timeline.
[[nodiscard]] Seconds makespan(const Timeline& timeline);

/// How a device spends the step. The three add up to the makespan.
struct DeviceUse {
  Seconds compute{};                ///< a kernel (compute, update, local, delay) runs
  Seconds exposed_communication{};  ///< no kernel runs, but a transfer or collective of this device
                                    ///< does
  Seconds idle{};
};
/// By device id, for `devices` devices.
[[nodiscard]] std::vector<DeviceUse> device_use(const ExecDag& dag, const Timeline& timeline,
                                                std::size_t devices);

}  // namespace parsim
