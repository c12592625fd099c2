#include "report/device_classes.hpp"

#include <fmt/format.h>

#include <string>
#include <unordered_map>

namespace parsim::report {

namespace {

/// What equal devices have in common.
std::string signature(const experiment::DeviceResult& device) {
  const lowering::MemoryUse& memory = device.memory;
  return fmt::format("{}/{}/{:.9g}/{:.9g}/{:.9g}/{}/{}/{}/{}/{}", device.model,
                     device.capacity.value, device.use.compute.count(),
                     device.use.exposed_communication.count(), device.use.idle.count(),
                     memory.weights.value, memory.gradients.value, memory.optimizer_state.value,
                     memory.activations.value, memory.communication.value);
}

}  // namespace

std::vector<DeviceClass> device_classes(const std::vector<experiment::DeviceResult>& devices) {
  std::vector<DeviceClass> classes;
  std::unordered_map<std::string, std::size_t> known;
  for (const experiment::DeviceResult& device : devices) {
    const auto [at, fresh] = known.try_emplace(signature(device), classes.size());
    if (fresh) {
      classes.push_back({device});
    } else {
      ++classes[at->second].count;
    }
  }
  return classes;
}

std::vector<DeviceClass> listed_devices(const experiment::RunResult& result) {
  constexpr std::size_t most_rows = 64;
  const auto usual = result.devices.size() > most_rows ? experiment::DeviceRows::classes
                                                       : experiment::DeviceRows::all;
  if (result.device_rows.value_or(usual) == experiment::DeviceRows::classes)
    return device_classes(result.devices);
  std::vector<DeviceClass> all;
  for (const experiment::DeviceResult& device : result.devices) all.push_back({device});
  return all;
}

}  // namespace parsim::report
