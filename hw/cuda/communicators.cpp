#include "hw/cuda/communicators.hpp"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <cstring>

#include "core/errors.hpp"
#include "hw/cuda/check.hpp"
#include "hw/processes.hpp"

namespace parsim::hw {

namespace {

/// All processes.
Circle everybody(const CudaDevices& devices) {
  Circle circle{-1, {}};
  for (std::size_t d = 0; d < devices.all().size(); ++d) circle.group.emplace_back(d);
  return circle;
}

/// One GPU's members of circles wait for others beside each other: their kernels must fit on it all
/// at once, or they might wait for one that cannot start.
void join_circle(ncclComm** communicator, const LogicalDevice& device, int size,
                 const ncclUniqueId& id, int rank) {
  constexpr int circles_at_once = 8, most_blocks = 32;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.maxCTAs = std::clamp(device.multiprocessors / circles_at_once, 1, most_blocks);
  nccl_check(ncclCommInitRankConfig(communicator, size, id, rank, &config),
             "ncclCommInitRankConfig");
}

}  // namespace

CallGroup::CallGroup() { nccl_check(ncclGroupStart(), "ncclGroupStart"); }
CallGroup::~CallGroup() {
  if (open_) static_cast<void>(ncclGroupEnd());
}
void CallGroup::begin_calls() {
  open_ = false;
  nccl_check(ncclGroupEnd(), "ncclGroupEnd");
}

Communicators::~Communicators() {
  for (const auto& [circle, members] : circles_) {
    for (ncclComm* communicator : members) {
      if (communicator != nullptr) static_cast<void>(ncclCommDestroy(communicator));
    }
  }
  static_cast<void>(cudaFree(word_));
}

void Communicators::prepare(const CudaDevices& devices, const std::vector<Circle>& circles) {
  Meeting* meeting = devices.meeting();
  std::vector<Circle> fresh;
  if (meeting != nullptr) fresh.push_back(everybody(devices));
  fresh.insert(fresh.end(), circles.begin(), circles.end());
  std::erase_if(fresh, [&](const Circle& circle) { return circles_.contains(circle); });
  if (meeting == nullptr) {
    for (const Circle& circle : fresh) {
      ncclUniqueId id{};
      nccl_check(ncclGetUniqueId(&id), "ncclGetUniqueId");
      std::vector<ncclComm*> members(circle.group.size());
      CallGroup calls;
      for (std::size_t m = 0; m < members.size(); ++m) {
        const LogicalDevice& device = devices.all()[circle.group[m].index()];
        devices.make_current(device);
        join_circle(&members[m], device, static_cast<int>(members.size()), id, static_cast<int>(m));
      }
      calls.begin_calls();
      circles_[circle] = members;
    }
    return;
  }
  // Rank 0 makes up a name for every circle, and the members of each meet under it, one circle
  // after another: one order everywhere, so that nobody waits for ever.
  std::string names;
  for (std::size_t g = 0; meeting->launch().rank == 0 && g < fresh.size(); ++g) {
    ncclUniqueId id{};
    nccl_check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    names.append(reinterpret_cast<const char*>(&id), sizeof id);
  }
  names = meeting->from_first(names);
  ensure(names.size() == fresh.size() * sizeof(ncclUniqueId), "every new circle has a name");
  for (std::size_t g = 0; g < fresh.size(); ++g) {
    const std::vector<DeviceId>& group = fresh[g].group;
    std::vector<ncclComm*> members(group.size());
    together(*meeting, [&] {
      for (std::size_t m = 0; m < group.size(); ++m) {
        if (!devices.runs(group[m])) continue;
        ncclUniqueId id{};
        std::memcpy(&id, names.data() + g * sizeof id, sizeof id);
        const LogicalDevice& device = devices.all()[group[m].index()];
        devices.make_current(device);
        join_circle(&members[m], device, static_cast<int>(group.size()), id, static_cast<int>(m));
      }
    });
    circles_[fresh[g]] = members;
  }
}

ncclComm* Communicators::of(const Circle& circle, DeviceId member) const {
  const auto at = std::find(circle.group.begin(), circle.group.end(), member);
  ensure(at != circle.group.end(), "a member is in its group");
  return circles_.at(circle)[static_cast<std::size_t>(at - circle.group.begin())];
}

void Communicators::line_up(const CudaDevices& devices, CUstream_st* stream) {
  if (word_ == nullptr) cuda_check(cudaMalloc(&word_, sizeof(float)), "cudaMalloc");
  nccl_check(ncclAllReduce(word_, word_, 1, ncclFloat32, ncclMax,
                           of(everybody(devices), *devices.mine()), stream),
             "ncclAllReduce");
}

std::string Communicators::trouble() const {
  for (const auto& [circle, members] : circles_) {
    for (ncclComm* communicator : members) {
      if (communicator == nullptr) continue;
      ncclResult_t state = ncclSuccess;
      if (ncclCommGetAsyncError(communicator, &state) != ncclSuccess || state != ncclSuccess) {
        return nccl_error_text(static_cast<int>(state));
      }
    }
  }
  return {};
}

void Communicators::abort() {
  for (const auto& [circle, members] : circles_) {
    for (ncclComm* communicator : members) {
      if (communicator != nullptr) static_cast<void>(ncclCommAbort(communicator));
    }
  }
  circles_.clear();
}

}  // namespace parsim::hw
