// Devices that do and hold the same, listed once.
#pragma once

#include <cstdint>
#include <vector>

#include "experiment/run.hpp"

namespace parsim::report {

struct DeviceClass {
  experiment::DeviceResult first;  ///< in the order of the cluster
  std::int64_t count = 1;
};

/// By their first device. Devices are equal if they are of one model with one capacity, and their
/// times and memory agree in nine digits.
[[nodiscard]] std::vector<DeviceClass> device_classes(
    const std::vector<experiment::DeviceResult>& devices);

/// What tables list: classes if asked for, or of more than 64 devices; else every device.
[[nodiscard]] std::vector<DeviceClass> listed_devices(const experiment::RunResult& result);

}  // namespace parsim::report
