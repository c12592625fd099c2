// NCCL on the emulated GPUs. As on true ones ranks wait for each other, senders for receivers, too;
// what is under way in a communicator goes one after another; what has begun keeps multiprocessors.
// Calls of a communicator that do not match end the program. What a rank tells another is a letter:
// in a file of a folder that their unique id names if some rank is another process's, else in
// memory.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
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
#include <map>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "tests/hw/emulated/machine.hpp"

/// Two ranks' letters are numbered by what they are for.
enum class Channel { collective, data, receipt };

struct ncclComm {
  std::string folder;
  int rank = 0, size = 1, device = 0, blocks = 0;
  bool outside = false;  ///< has ranks in other processes
  bool aborted = false, busy = false;
  std::map<std::pair<Channel, int>, std::uint64_t> sent, received;  ///< how many letters, by rank
};

namespace emulated {

namespace {

namespace fs = std::filesystem;

struct Call {
  const char* function;
  const void* from = nullptr;
  void* to = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  int peer = -1;  ///< or root
  ncclRedOp_t operation = ncclSum;

  [[nodiscard]] std::size_t bytes() const { return count * (type == ncclFloat32 ? 4 : 2); }
  [[nodiscard]] bool is(const char* name) const { return function == std::string(name); }
  [[nodiscard]] bool sends() const { return is("ncclSend"); }
  [[nodiscard]] bool receives() const { return is("ncclRecv"); }
  [[nodiscard]] bool reads(int rank) const {
    return !receives() && (!is("ncclBroadcast") || rank == peer);
  }
  [[nodiscard]] bool writes(int rank) const {
    return !sends() && (!is("ncclReduce") || rank == peer);
  }
  /// What ranks have to agree on.
  [[nodiscard]] std::string terms() const {
    const bool pair = sends() || receives();
    return (pair ? "pair" : function + (" " + std::to_string(peer))) + " " + std::to_string(count) +
           " " + std::to_string(type) + " " + std::to_string(operation);
  }
};
/// What one group puts on one stream of one communicator.
struct Batch {
  ncclComm* communicator;
  cudaStream_t stream;
  std::vector<Call> calls;
};
std::vector<Batch> group;
int depth = 0;

/// Of each GPU: multiprocessors of kernels that wait for other ranks.
std::map<int, int> held_blocks;
/// Letters within the process, by name.
std::map<std::string, std::string> letters;

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "emulated NCCL: %s\n", why.c_str());
  std::abort();
}

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

std::string letter(const ncclComm& c, Channel channel, int from, int to, std::uint64_t number) {
  return c.folder + "/" + std::to_string(from) + "-" + std::to_string(to) + "-" +
         std::to_string(static_cast<int>(channel)) + "-" + std::to_string(number);
}
bool has_come(const ncclComm& c, const std::string& name) {
  return c.outside ? fs::exists(name) : letters.contains(name);
}
std::string taken(const ncclComm& c, const std::string& name) {
  if (!c.outside) return std::move(letters.extract(name).mapped());
  std::string text = content(name);
  fs::remove(name);
  return text;
}

/// A batch under way: its messages are sent once, then what is expected is looked for.
class Exchange {
 public:
  Exchange(ncclComm& communicator, std::vector<Call> calls)
      : c_(communicator), calls_(std::move(calls)) {}

  std::optional<Nanoseconds> go_on(Nanoseconds start) {
    if (c_.aborted) return start;
    if (!begun_ && !begin(start)) return std::nullopt;
    for (const std::string& name : expected_) {
      if (!has_come(c_, name)) return std::nullopt;
    }
    begun_ = c_.busy = false;
    held_blocks[c_.device] -= c_.blocks;
    return finish(start);
  }

 private:
  bool begin(Nanoseconds start) {
    if (c_.busy || held_blocks[c_.device] + c_.blocks > multiprocessors) return false;
    begun_ = c_.busy = true;
    held_blocks[c_.device] += c_.blocks;
    note_progress();
    expected_.clear();
    ++nccl_calls()["group"];
    for (const Call& call : calls_) {
      ++nccl_calls()[call.function];
      for (int peer = 0; peer < c_.size; ++peer) {
        const bool pair = call.sends() || call.receives();
        if (peer == c_.rank || (pair && call.peer != peer)) continue;
        const Channel out = !pair          ? Channel::collective
                            : call.sends() ? Channel::data
                                           : Channel::receipt;
        const Channel in = !pair          ? Channel::collective
                           : call.sends() ? Channel::receipt
                                          : Channel::data;
        send(call, out, peer, start);
        expected_.push_back(letter(c_, in, peer, c_.rank, c_.received[{in, peer}]++));
      }
    }
    return true;
  }

  void send(const Call& call, Channel channel, int peer, Nanoseconds start) {
    std::string text(reinterpret_cast<const char*>(&start), sizeof start);
    text += call.terms() + '\n';
    const auto* data = static_cast<const char*>(call.from);
    if (call.is("ncclReduceScatter")) data += static_cast<std::size_t>(peer) * call.bytes();
    if (call.reads(c_.rank)) text.append(data, call.bytes());
    const std::string name = letter(c_, channel, c_.rank, peer, c_.sent[{channel, peer}]++);
    if (c_.outside) {
      mailbox(name, text);
    } else {
      letters.emplace(name, std::move(text));
    }
  }

  Nanoseconds finish(Nanoseconds start) {
    std::size_t next = 0;
    std::size_t moved = 0;
    for (const Call& call : calls_) {
      // The ranks' numbers, in their order; nothing of who sends none.
      std::vector<std::string> parts;
      const bool pair = call.sends() || call.receives();
      for (int peer = 0; peer < c_.size; ++peer) {
        if (peer == c_.rank && !pair) {
          const auto* own = static_cast<const char*>(call.from);
          if (call.is("ncclReduceScatter")) own += static_cast<std::size_t>(peer) * call.bytes();
          parts.emplace_back(own, call.reads(peer) ? call.bytes() : 0);
        }
        if (peer == c_.rank || (pair && call.peer != peer)) continue;
        const std::string text = taken(c_, expected_[next++]);
        Nanoseconds other = 0;
        std::memcpy(&other, text.data(), sizeof other);
        start = std::max(start, other);
        const std::size_t end = text.find('\n', sizeof other);
        const std::string terms = text.substr(sizeof other, end - sizeof other);
        if (terms != call.terms()) {
          give_up("ranks " + std::to_string(c_.rank) + " and " + std::to_string(peer) + " call " +
                  call.terms() + " and " + terms);
        }
        parts.push_back(text.substr(end + 1));
      }
      moved += call.bytes();
      if (!call.writes(c_.rank) || !settings().numbers) continue;
      if (call.is("ncclAllGather")) {
        for (std::size_t r = 0; r < parts.size(); ++r) {
          std::memcpy(static_cast<char*>(call.to) + r * call.bytes(), parts[r].data(),
                      call.bytes());
        }
        continue;
      }
      std::erase_if(parts, [&](const std::string& part) { return part.size() != call.bytes(); });
      if (call.type == ncclFloat32) {
        reduce<float>(call, parts);
      } else if (call.type == ncclFloat16) {
        reduce<__half>(call, parts);
      } else {
        reduce<__nv_bfloat16>(call, parts);
      }
    }
    return start + 10000 + static_cast<double>(moved) / 100;  // 100 GB/s
  }

  template <class T>
  static void reduce(const Call& call, const std::vector<std::string>& parts) {
    auto* to = static_cast<T*>(call.to);
    for (std::size_t i = 0; i < call.count; ++i) {
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
  const ncclComm& c = *communicator;
  const bool to_itself = (what.sends() || what.receives()) && what.peer == c.rank;
  if (what.peer >= c.size || to_itself) return ncclInvalidArgument;
  // Of the rank's own GPU; kernels of others reach it by themselves.
  if (what.reads(c.rank) && device_of(what.from) != c.device) return ncclInvalidArgument;
  if (what.writes(c.rank) && device_of(what.to) != c.device) return ncclInvalidArgument;
  auto batch = std::find_if(group.begin(), group.end(), [&](const Batch& one) {
    return one.communicator == communicator && one.stream == stream;
  });
  if (batch == group.end()) batch = group.insert(group.end(), {communicator, stream, {}});
  batch->calls.push_back(what);
  return depth > 0 ? ncclSuccess : flush();
}

ncclComm* make(const std::string& folder, int rank, int size, int blocks, bool outside) {
  return new ncclComm{folder, rank, size, current_device(), blocks, outside, false, false, {}, {}};
}

}  // namespace

std::map<std::string, std::int64_t>& nccl_calls() {
  static std::map<std::string, std::int64_t> calls;
  return calls;
}

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
    communicators[rank] = make(folder, rank, count, 1, false);
  }
  static_cast<void>(cudaSetDevice(before));
  return ncclSuccess;
}
ncclResult_t ncclCommInitRankConfig(ncclComm_t* communicator, int count, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->maxCTAs < 1 || rank < 0 || rank >= count) return ncclInvalidArgument;
  *communicator = make(id.internal, rank, count, config->maxCTAs, true);
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
  return call({"ncclAllReduce", from, to, count, type, -1, operation}, communicator, stream);
}
ncclResult_t ncclReduce(const void* from, void* to, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t operation, int root, ncclComm_t communicator,
                        cudaStream_t stream) {
  return call({"ncclReduce", from, to, count, type, root, operation}, communicator, stream);
}
ncclResult_t ncclBroadcast(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t communicator, cudaStream_t stream) {
  return call({"ncclBroadcast", from, to, count, type, root}, communicator, stream);
}
ncclResult_t ncclReduceScatter(const void* from, void* to, std::size_t count, ncclDataType_t type,
                               ncclRedOp_t operation, ncclComm_t communicator,
                               cudaStream_t stream) {
  return call({"ncclReduceScatter", from, to, count, type, -1, operation}, communicator, stream);
}
ncclResult_t ncclAllGather(const void* from, void* to, std::size_t count, ncclDataType_t type,
                           ncclComm_t communicator, cudaStream_t stream) {
  return call({"ncclAllGather", from, to, count, type}, communicator, stream);
}
ncclResult_t ncclSend(const void* from, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  return call({"ncclSend", from, nullptr, count, type, peer}, communicator, stream);
}
ncclResult_t ncclRecv(void* to, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t communicator, cudaStream_t stream) {
  return call({"ncclRecv", nullptr, to, count, type, peer}, communicator, stream);
}
}
