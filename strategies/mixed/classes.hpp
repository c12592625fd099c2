// Devices that are alike, and which of them a stage gets. Private to the search for mixed stages.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "strategies/strategies.hpp"

namespace parsim::strategies::mixed {

/// Devices of one model, memory and machine: as many of them in a machine, and as far from others.
struct DeviceClass {
  std::vector<std::vector<DeviceId>> machines;  ///< by machine its devices, ascending
  [[nodiscard]] std::size_t size() const {
    std::size_t all = 0;
    for (const std::vector<DeviceId>& machine : machines) all += machine.size();
    return all;
  }
  [[nodiscard]] std::size_t of_machine() const { return machines[0].size(); }
};

/// In order of their first devices. Where links make more than `most` classes of them, the links
/// do not count.
[[nodiscard]] std::vector<DeviceClass> device_classes(const StrategyInput& input, std::size_t most);

/// Hands out the devices of classes to tensor-parallel groups, one stage after the other.
class Placement {
 public:
  explicit Placement(const std::vector<DeviceClass>& classes);
  /// `count` groups of `tensor` devices, each within a machine if it fits into one: all of them in
  /// the fullest machine that has room for them, else in machines one after the other. Nothing if
  /// there is no room left.
  [[nodiscard]] std::optional<std::vector<std::vector<DeviceId>>> take(std::size_t of_class,
                                                                       std::size_t tensor,
                                                                       std::size_t count);

 private:
  std::vector<std::vector<std::vector<DeviceId>>> free_;  ///< by class, then machine
};

}  // namespace parsim::strategies::mixed
