// NCCL on the emulated GPUs. What a rank tells another lies in a file of a folder that their unique
// id names, so that one process with several GPUs and several processes work alike.
#include <cuda_bf16.h>
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "tests/hw/emulated/machine.hpp"

struct ncclComm {
  std::string folder;
  int rank = 0, size = 1, device = 0;
  bool outside = false;  ///< has ranks in other processes
  bool aborted = false;
  std::vector<std::uint64_t> sent, received;  ///< how many messages, by rank
};

namespace emulated {

namespace {

namespace fs = std::filesystem;

struct Call {
  const void* from = nullptr;  ///< null: only receives
  void* to = nullptr;          ///< null: only sends
  std::size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  int peer = -1;  ///< -1: an all-reduce
  ncclRedOp_t operation = ncclSum;

  [[nodiscard]] std::size_t bytes() const { return count * (type == ncclFloat32 ? 4 : 2); }
};
/// What one group puts on one stream of one communicator.
struct Batch {
  ncclComm* communicator;
  cudaStream_t stream;
  std::vector<Call> calls;
};
std::vector<Batch> group;
int depth = 0;

std::string new_folder() {
  std::string name = (fs::temp_directory_path() / "emulated-nccl-XXXXXX").string();
  return ::mkdtemp(name.data()) == nullptr ? "" : name;
}

/// The whole file or none.
void mailbox(const std::string& path, const std::string& content) {
  std::ofstream(path + ".part", std::ios::binary) << content;
  std::error_code ignored;  // the folder goes when ranks give up
  fs::rename(path + ".part", path, ignored);
}
std::string content(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string letter(const ncclComm& c, int from, int to, std::uint64_t number) {
  return c.folder + "/" + std::to_string(from) + "-" + std::to_string(to) + "-" +
         std::to_string(number);
}

void send(ncclComm& c, int peer, Nanoseconds start, const void* data, std::size_t bytes) {
  std::string text(reinterpret_cast<const char*>(&start), sizeof start);
  text.append(static_cast<const char*>(data), bytes);
  mailbox(letter(c, c.rank, peer, c.sent[static_cast<std::size_t>(peer)]++), text);
}

/// A batch under way: its messages are sent once, then what is expected is looked for.
class Exchange {
 public:
  Exchange(ncclComm& communicator, std::vector<Call> calls)
      : c_(communicator), calls_(std::move(calls)) {}

  std::optional<Nanoseconds> go_on(Nanoseconds start) {
    if (c_.aborted) return start;
    if (!begun_) begin(start);
    for (const std::string& path : expected_) {
      if (!fs::exists(path)) return std::nullopt;
    }
    begun_ = false;
    return finish(start);
  }

 private:
  void begin(Nanoseconds start) {
    begun_ = true;
    expected_.clear();
    for (const Call& call : calls_) {
      for (int peer = 0; peer < c_.size; ++peer) {
        if (peer == c_.rank || (call.peer >= 0 && call.peer != peer)) continue;
        if (call.from != nullptr) send(c_, peer, start, call.from, call.bytes());
        if (call.to == nullptr) continue;
        expected_.push_back(
            letter(c_, peer, c_.rank, c_.received[static_cast<std::size_t>(peer)]++));
      }
    }
  }

  Nanoseconds finish(Nanoseconds start) {
    std::size_t next = 0;
    std::size_t moved = 0;
    // The members' numbers of a call, in the order of ranks.
    for (const Call& call : calls_) {
      if (call.to == nullptr) continue;
      std::vector<std::string> parts;
      for (int peer = 0; peer < c_.size; ++peer) {
        if (peer == c_.rank && call.peer < 0) {
          parts.emplace_back(static_cast<const char*>(call.from), call.bytes());
        }
        if (peer == c_.rank || (call.peer >= 0 && call.peer != peer)) continue;
        const std::string text = content(expected_[next]);
        fs::remove(expected_[next++]);
        Nanoseconds other = 0;
        std::memcpy(&other, text.data(), sizeof other);
        start = std::max(start, other);
        parts.push_back(text.substr(sizeof other));
        if (parts.back().size() != call.bytes()) {
          std::fprintf(stderr, "emulated NCCL: ranks have messages of different sizes\n");
          std::abort();
        }
      }
      moved += call.bytes();
      if (call.type == ncclFloat32) {
        reduce<float>(call, parts);
      } else {
        reduce<__nv_bfloat16>(call, parts);
      }
    }
    return start + 10000 + static_cast<double>(moved) / 100;  // 100 GB/s
  }

  template <class T>
  static void reduce(const Call& call, const std::vector<std::string>& parts) {
    auto* to = static_cast<T*>(call.to);
    for (std::size_t i = 0; i < (settings().numbers ? call.count : 0); ++i) {
      float result = 0;
      for (std::size_t p = 0; p < parts.size(); ++p) {
        T value;
        std::memcpy(&value, parts[p].data() + i * sizeof value, sizeof value);
        const auto number = static_cast<float>(value);
        result = p == 0                      ? number
                 : call.operation == ncclMax ? std::max(result, number)
                                             : result + number;
      }
      to[i] = T(result);
    }
  }

  ncclComm& c_;
  std::vector<Call> calls_;
  std::vector<std::string> expected_;
  bool begun_ = false;
};

std::vector<ncclComm*> joining;  ///< made in this group

/// What a rank says of itself when it comes.
std::string greeting(const ncclComm& c, int rank) {
  return c.folder + "/rank" + std::to_string(rank);
}

/// All ranks of the communicators that are being made have come; two on one GPU only if allowed.
ncclResult_t meet_ranks() {
  constexpr auto timeout = std::chrono::seconds(60);
  const auto begin = std::chrono::steady_clock::now();
  const char* several = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  const bool may_share =
      settings().nccl >= 23003 && several != nullptr && several == std::string("1");
  const std::vector<ncclComm*> fresh = std::exchange(joining, {});
  for (ncclComm* c : fresh) {
    const auto here = std::count_if(fresh.begin(), fresh.end(),
                                    [&](const ncclComm* one) { return one->folder == c->folder; });
    c->outside = here < c->size;
    for (int other = 0; other < c->size; ++other) {
      while (!fs::exists(greeting(*c, other))) {
        if (std::chrono::steady_clock::now() - begin > timeout) return ncclRemoteError;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
      const bool same =
          other != c->rank && content(greeting(*c, other)) == content(greeting(*c, c->rank));
      if (same && !may_share) return ncclInvalidUsage;
    }
  }
  return ncclSuccess;
}

ncclResult_t flush() {
  if (!joining.empty()) {
    if (const ncclResult_t met = meet_ranks(); met != ncclSuccess) return met;
  }
  for (Batch& batch : std::exchange(group, {})) {
    if (batch.communicator->device != stream_of(batch.stream)->device) return ncclInvalidArgument;
    // NCCL makes the communicator's device current itself.
    const int before = current_device();
    static_cast<void>(cudaSetDevice(batch.communicator->device));
    const auto exchange = std::make_shared<Exchange>(*batch.communicator, std::move(batch.calls));
    const cudaError_t error = put(
        batch.stream, [exchange](Nanoseconds start) { return exchange->go_on(start); },
        batch.communicator->outside);
    static_cast<void>(cudaSetDevice(before));
    if (error != cudaSuccess) return ncclUnhandledCudaError;
  }
  return ncclSuccess;
}

ncclResult_t call(const Call& what, ncclComm* communicator, cudaStream_t stream) {
  if (what.peer >= communicator->size || what.peer == communicator->rank) {
    return ncclInvalidArgument;
  }
  auto batch = std::find_if(group.begin(), group.end(), [&](const Batch& one) {
    return one.communicator == communicator && one.stream == stream;
  });
  if (batch == group.end()) batch = group.insert(group.end(), {communicator, stream, {}});
  batch->calls.push_back(what);
  return depth > 0 ? ncclSuccess : flush();
}

ncclComm* make(const std::string& folder, int rank, int size, bool outside) {
  const auto ranks = static_cast<std::size_t>(size);
  return new ncclComm{folder,
                      rank,
                      size,
                      current_device(),
                      outside,
                      false,
                      std::vector<std::uint64_t>(ranks),
                      std::vector<std::uint64_t>(ranks)};
}

}  // namespace

}  // namespace emulated

using namespace emulated;

extern "C" {

const char* ncclGetErrorString(ncclResult_t) { return "emulated NCCL's error"; }
ncclResult_t ncclGetVersion(int* version) {
  *version = settings().nccl;
  return ncclSuccess;
}
ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  const std::string folder = new_folder();
  if (folder.empty() || folder.size() >= sizeof id->internal) return ncclSystemError;
  *id = {};
  std::memcpy(id->internal, folder.c_str(), folder.size());
  return ncclSuccess;
}
ncclResult_t ncclCommInitAll(ncclComm_t* communicators, int count, const int* devices) {
  const std::set<int> different(devices, devices + count);
  if (static_cast<int>(different.size()) < count) return ncclInvalidUsage;  // two ranks on one GPU
  const std::string folder = new_folder();
  if (folder.empty()) return ncclSystemError;
  const int before = current_device();
  for (int rank = 0; rank < count; ++rank) {
    if (cudaSetDevice(devices[rank]) != cudaSuccess) return ncclUnhandledCudaError;
    communicators[rank] = make(folder, rank, count, false);
  }
  static_cast<void>(cudaSetDevice(before));
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int count, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->maxCTAs < 1 || rank < 0 || rank >= count) return ncclInvalidArgument;
  *communicator = make(id.internal, rank, count, true);
  const char* host = std::getenv("NCCL_HOSTID");
  mailbox(greeting(**communicator, rank),
          (host == nullptr ? "" : host) + std::to_string(current_device()));
  joining.push_back(*communicator);
  return depth > 0 ? ncclSuccess : meet_ranks();
}
ncclResult_t ncclCommDestroy(ncclComm_t communicator) {
  // Who reads what a rank has left does so before it goes; the last one finds an empty folder.
  std::error_code ignored;
  fs::remove(greeting(*communicator, communicator->rank), ignored);
  fs::remove(communicator->folder, ignored);
  delete communicator;
  return ncclSuccess;
}
ncclResult_t ncclCommAbort(ncclComm_t communicator) {
  communicator->aborted = true;
  work_until(nullptr);
  std::error_code ignored;
  fs::remove_all(communicator->folder, ignored);
  return ncclSuccess;
}
ncclResult_t ncclCommGetAsyncError(ncclComm_t, ncclResult_t* state) {
  *state = ncclSuccess;
  return ncclSuccess;
}
ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}
ncclResult_t ncclGroupEnd() {
  if (depth == 0) return ncclInvalidUsage;
  return --depth == 0 ? flush() : ncclSuccess;
}
ncclResult_t ncclAllReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t operation, ncclComm_t communicator, cudaStream_t stream) {
  return call({from, to, count, type, -1, operation}, communicator, stream);
}
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  return call({from, nullptr, count, type, peer}, communicator, stream);
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  return call({nullptr, to, count, type, peer}, communicator, stream);
}
}
