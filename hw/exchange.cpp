#include "hw/exchange.hpp"

#include <algorithm>

#include "core/dag_traffic.hpp"

namespace parsim::hw {

std::vector<DeviceId> devices_of(const ExecDag& dag, OpId op) {
  std::vector<Queue> occupied;
  queues(dag, op, occupied);
  std::vector<DeviceId> devices;
  for (const Queue& queue : occupied) {
    if (std::find(devices.begin(), devices.end(), queue.device) == devices.end()) {
      devices.push_back(queue.device);
    }
  }
  return devices;
}

void Exchange::meet(OpId op, const std::function<std::string(DeviceId to)>& give,
                    const std::function<void(DeviceId from, const std::string&)>& take) const {
  const std::uint64_t number = series_ << 32 | op.index();
  const std::vector<DeviceId> devices = devices_of(dag_, op);
  for (const DeviceId device : devices) {
    if (device != mine_) mailbox_.send(device.value, number, give(device));
  }
  for (const DeviceId device : devices) {
    if (device != mine_) take(device, mailbox_.receive(device.value, number));
  }
}

void Exchange::meet(OpId op) const {
  meet(
      op, [](DeviceId) { return std::string(); }, [](DeviceId, const std::string&) {});
}

}  // namespace parsim::hw
