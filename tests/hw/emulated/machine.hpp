// The emulated GPUs: what streams, events and graphs are, and the order in which work is done. Work
// waits until a caller asks for its end; then whatever may begin does so in a random order, so that
// a missing wait shows in the numbers. Times are of a clock of its own: a thing begins when what it
// waits for has ended and the host has issued it, and takes as long as a formula says.
#pragma once

#include <cuda_runtime_api.h>

#include <bit>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "tests/hw/emulated/settings.hpp"

namespace emulated {

using Nanoseconds = double;

/// What a stream does: when it ends, begun at `start`; nothing while other processes are awaited.
using Work = std::function<std::optional<Nanoseconds>(Nanoseconds start)>;

struct Item {
  Work work;  ///< empty: a point in the order
  bool outside = false;
  Nanoseconds start = 0, end = 0;
  int waits = 0;
  bool done = false;
  std::vector<std::shared_ptr<Item>> followers;
};
using ItemPtr = std::shared_ptr<Item>;

struct Node {
  Work work;
  bool outside = false;
  std::vector<std::size_t> after;
};
struct Capture {
  std::vector<Node> nodes;
  CUstream_st* origin = nullptr;
  std::vector<CUstream_st*> streams;
  bool broken = false;
};

inline constexpr int multiprocessors = 132, granularity = 8;

[[nodiscard]] int current_device();
/// Whose memory this is; -1: no GPU's.
[[nodiscard]] int device_of(const void* data);
/// The legacy stream of the current device for null.
[[nodiscard]] CUstream_st* stream_of(cudaStream_t stream);
/// Puts work on a stream, or into the graph that the stream captures. `outside`: other processes
/// take part.
cudaError_t put(cudaStream_t stream, Work work, bool outside = false);
/// Remembers an error for cudaGetLastError.
cudaError_t failed(cudaError_t error);
/// Called by work that has begun, or let other work begin, and has not ended.
void note_progress();
/// Does what can be done until the item is; without one, until nothing can begin at present.
void work_until(const Item* item);
/// The stream whose partition a graph's work runs in, if not in its own.
[[nodiscard]] const CUstream_st* graph_moved_to();
/// Everything on the device's streams is done.
void drain(int device);

/// A factor of a product as tensor cores see it: in tf32, with ten bits of mantissa.
[[nodiscard]] inline float factor(float value, bool rounds) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return rounds ? std::bit_cast<float>((bits + 0x1000U) & 0xffffe000U) : value;
}

/// What the work being done wants of its GPU's memory, in multiprocessors that walk through it.
struct MemoryWant {
  int device = 0;
  double demand = 0, weight = 0;
};
void want_memory(MemoryWant want);

/// Until a kernel has begun.
inline constexpr Nanoseconds kernel_begins = 2000;
/// How long arithmetic takes on so many multiprocessors.
[[nodiscard]] Nanoseconds kernel_time(double operations, int on_multiprocessors);
/// How long a library's product takes on a stream; what it wants of memory is noted.
[[nodiscard]] Nanoseconds gemm_time(double operations, double bytes, const CUstream_st& stream);

}  // namespace emulated

struct CUstream_st {
  int device = 0, first = 0, multiprocessors = emulated::multiprocessors;
  emulated::ItemPtr last;
  std::shared_ptr<emulated::Capture> capture;
  std::vector<std::size_t> heads;  ///< of the capture's nodes
};
struct CUevent_st {
  int device = 0;
  bool timed = false;
  emulated::ItemPtr item;
  std::shared_ptr<emulated::Capture> capture;
  std::vector<std::size_t> heads;
};
struct CUgraph_st {
  std::vector<emulated::Node> nodes;
};
struct CUgraphExec_st {
  std::vector<emulated::Node> nodes;
};
