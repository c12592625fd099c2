#include "hw/cuda/communicators.hpp"

#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "core/errors.hpp"
#include "hw/cuda/check.hpp"
#include "hw/meeting.hpp"

namespace parsim::hw {

Communicators::~Communicators() {
  for (const auto& [group, members] : groups_) {
    for (ncclComm* communicator : members) {
      if (communicator != nullptr) static_cast<void>(ncclCommDestroy(communicator));
    }
  }
}

void Communicators::prepare(const CudaDevices& devices,
                            const std::vector<std::vector<DeviceId>>& groups) {
  std::vector<std::vector<DeviceId>> fresh;
  for (const std::vector<DeviceId>& group : groups) {
    if (groups_.contains(group)) continue;
    groups_[group].resize(group.size());
    fresh.push_back(group);
  }
  Meeting* meeting = devices.meeting();
  if (meeting == nullptr) {
    for (const std::vector<DeviceId>& group : fresh) {
      std::vector<int> gpus;
      for (const DeviceId device : group) gpus.push_back(devices.all()[device.index()].gpu);
      nccl_check(ncclCommInitAll(groups_[group].data(), static_cast<int>(gpus.size()), gpus.data()),
                 "ncclCommInitAll");
    }
    return;
  }
  // Rank 0 makes up a name for every group, and the members of each meet under it, group by group:
  // one order everywhere, so that nobody waits for ever.
  std::string names;
  for (std::size_t g = 0; meeting->launch().rank == 0 && g < fresh.size(); ++g) {
    ncclUniqueId id{};
    nccl_check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    names.append(reinterpret_cast<const char*>(&id), sizeof id);
  }
  names = meeting->from_first(names);
  ensure(names.size() == fresh.size() * sizeof(ncclUniqueId), "every new group has a name");
  for (std::size_t g = 0; g < fresh.size(); ++g) {
    const std::vector<DeviceId>& group = fresh[g];
    for (std::size_t m = 0; m < group.size(); ++m) {
      if (!devices.runs(group[m])) continue;
      ncclUniqueId id{};
      std::memcpy(&id, names.data() + g * sizeof id, sizeof id);
      devices.make_current(devices.all()[group[m].index()]);
      nccl_check(ncclCommInitRank(&groups_[group][m], static_cast<int>(group.size()), id,
                                  static_cast<int>(m)),
                 "ncclCommInitRank");
    }
  }
}

ncclComm* Communicators::of(const std::vector<DeviceId>& group, DeviceId member) const {
  const auto at = std::find(group.begin(), group.end(), member);
  ensure(at != group.end(), "a member is in its group");
  return groups_.at(group)[static_cast<std::size_t>(at - group.begin())];
}

}  // namespace parsim::hw
