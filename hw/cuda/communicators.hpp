// NCCL's communicators of groups of devices: made once, used by every DAG.
#pragma once

#include <map>
#include <vector>

#include "hw/cuda/devices.hpp"

struct ncclComm;

namespace parsim::hw {

class Communicators {
 public:
  Communicators() = default;
  ~Communicators();
  Communicators(const Communicators&) = delete;
  Communicators& operator=(const Communicators&) = delete;

  /// Makes those that are not there yet. Of several processes all call this with the same groups.
  void prepare(const CudaDevices& devices, const std::vector<std::vector<DeviceId>>& groups);
  /// The member's; it is one of this process's devices.
  [[nodiscard]] ncclComm* of(const std::vector<DeviceId>& group, DeviceId member) const;

 private:
  /// By group, by member; null where another process has the device.
  std::map<std::vector<DeviceId>, std::vector<ncclComm*>> groups_;
};

}  // namespace parsim::hw
