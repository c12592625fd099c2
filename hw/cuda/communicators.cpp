#include "hw/cuda/communicators.hpp"

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <cstring>

#include "core/errors.hpp"
#include "core/op.hpp"
#include "hw/cuda/check.hpp"
#include "hw/processes.hpp"

namespace parsim::hw {

namespace {

/// All processes.
CommunicatorKey all_ranks(const CudaDevices& devices) {
  CommunicatorKey key{-1, {}};
  for (std::size_t d = 0; d < devices.all().size(); ++d) key.group.emplace_back(d);
  return key;
}

/// One GPU's members of communicators wait for others concurrently, one on each stream of messages:
/// their kernels must fit on it all at once, or they might wait for one that cannot start.
void join_communicator(ncclComm** communicator, const LogicalDevice& device, int size,
                       const ncclUniqueId& id, int rank) {
  // Every stream but the computing one sends and receives.
  constexpr int communicators_at_once = 2 * (static_cast<int>(stream_count) - 1);
  constexpr int most_blocks = 32;
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.maxCTAs = std::clamp(device.multiprocessors / communicators_at_once, 1, most_blocks);
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
  for (const auto& [key, members] : by_key_) {
    for (ncclComm* communicator : members) {
      if (communicator != nullptr) static_cast<void>(ncclCommDestroy(communicator));
    }
  }
  static_cast<void>(cudaFree(word_));
}

void Communicators::prepare(const CudaDevices& devices,
                            const std::vector<CommunicatorKey>& communicator_keys) {
  Processes* processes = devices.processes();
  std::vector<CommunicatorKey> fresh;
  if (processes != nullptr) fresh.push_back(all_ranks(devices));
  fresh.insert(fresh.end(), communicator_keys.begin(), communicator_keys.end());
  std::erase_if(fresh, [&](const CommunicatorKey& key) { return by_key_.contains(key); });
  if (processes == nullptr) {
    for (const CommunicatorKey& key : fresh) {
      ncclUniqueId id{};
      nccl_check(ncclGetUniqueId(&id), "ncclGetUniqueId");
      std::vector<ncclComm*> members(key.group.size());
      CallGroup calls;
      for (std::size_t m = 0; m < members.size(); ++m) {
        const LogicalDevice& device = devices.all()[key.group[m].index()];
        devices.make_current(device);
        join_communicator(&members[m], device, static_cast<int>(members.size()), id,
                          static_cast<int>(m));
      }
      calls.begin_calls();
      by_key_[key] = members;
    }
    return;
  }
  // Rank 0 makes up a name for every key, and the members of each meet under it, one key
  // after another: one order everywhere, which rules out a deadlock.
  std::string names;
  for (std::size_t g = 0; processes->rank() == 0 && g < fresh.size(); ++g) {
    ncclUniqueId id{};
    nccl_check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    names.append(reinterpret_cast<const char*>(&id), sizeof id);
  }
  names = processes->broadcast(names);
  ensure(names.size() == fresh.size() * sizeof(ncclUniqueId), "every new communicator has an id");
  for (std::size_t g = 0; g < fresh.size(); ++g) {
    const std::vector<DeviceId>& group = fresh[g].group;
    std::vector<ncclComm*> members(group.size());
    together(*processes, [&] {
      for (std::size_t m = 0; m < group.size(); ++m) {
        if (!devices.runs(group[m])) continue;
        ncclUniqueId id{};
        std::memcpy(&id, names.data() + g * sizeof id, sizeof id);
        const LogicalDevice& device = devices.all()[group[m].index()];
        devices.make_current(device);
        join_communicator(&members[m], device, static_cast<int>(group.size()), id,
                          static_cast<int>(m));
      }
    });
    by_key_[fresh[g]] = members;
  }
}

ncclComm* Communicators::of(const CommunicatorKey& key, DeviceId member) const {
  const auto at = std::find(key.group.begin(), key.group.end(), member);
  ensure(at != key.group.end(), "a member is in its group");
  return by_key_.at(key)[static_cast<std::size_t>(at - key.group.begin())];
}

void Communicators::line_up(const CudaDevices& devices, CUstream_st* stream) {
  if (word_ == nullptr) cuda_check(cudaMalloc(&word_, sizeof(float)), "cudaMalloc");
  nccl_check(ncclAllReduce(word_, word_, 1, ncclFloat32, ncclMax,
                           of(all_ranks(devices), *devices.mine()), stream),
             "ncclAllReduce");
}

std::string Communicators::trouble() const {
  for (const auto& [key, members] : by_key_) {
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
  for (const auto& [key, members] : by_key_) {
    for (ncclComm* communicator : members) {
      if (communicator != nullptr) static_cast<void>(ncclCommAbort(communicator));
    }
  }
  by_key_.clear();
}

}  // namespace parsim::hw
