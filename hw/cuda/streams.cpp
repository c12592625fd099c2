#include "hw/cuda/streams.cuh"

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/dag_traffic.hpp"
#include "hw/cuda/communicators.hpp"
#include "hw/processes.hpp"

namespace parsim::hw {

CudaStreams::CudaStreams(const CudaDevices& devices, const Dispatch& order, const CudaStreams* like)
    : devices_(devices), owns_(like == nullptr) {
  for (const Queue& stream : order.streams) homes_.push_back(stream.device);
  if (homes_.empty()) homes_.push_back(devices.mine().value_or(DeviceId{0}));
  if (like != nullptr) streams_ = like->streams_;
  for (const DeviceId home : homes_) {
    if (owns_) streams_.push_back(devices.make_stream(devices.all()[home.index()]));
  }
  for (std::int32_t stream = 0; stream < count(); ++stream) {
    rendezvous_.push_back(event(stream, false));
    joins_.push_back(event(stream, false));
  }
  fork_ = std::make_unique<Event>(event(0, false));
}

CudaStreams::~CudaStreams() {
  if (!owns_) return;
  for (cudaStream_t stream : streams_) static_cast<void>(cudaStreamDestroy(stream));
}

void CudaStreams::make_current(std::int32_t stream) const {
  devices_.make_current(devices_.all()[device(stream).index()]);
}

Event CudaStreams::event(std::int32_t stream, bool timed) const {
  make_current(stream);
  return Event(timed);
}

void CudaStreams::record(const Event& event, std::int32_t stream) const {
  cuda_check(cudaEventRecord(event.get(), handle(stream)), "cudaEventRecord");
}

void CudaStreams::wait(std::int32_t stream, const Event& event) const {
  cuda_check(cudaStreamWaitEvent(handle(stream), event.get(), 0), "cudaStreamWaitEvent");
}

std::map<DeviceId, Event> CudaStreams::origins() const {
  std::map<DeviceId, Event> origins;
  for (std::int32_t stream = 0; stream < count(); ++stream) {
    if (origins.contains(device(stream))) continue;
    const auto entry = origins.emplace(device(stream), event(stream, true)).first;
    // Partitions of one GPU have one clock, and begin together.
    record(entry->second, devices_.partitioned() ? 0 : stream);
  }
  return origins;
}

void CudaStreams::barrier(std::span<const StreamOp> stream_ops) {
  for (const StreamOp& stream_op : stream_ops)
    record(rendezvous_[static_cast<std::size_t>(stream_op.stream)], stream_op.stream);
  for (const StreamOp& stream_op : stream_ops) {
    for (const StreamOp& other : stream_ops) {
      if (other.stream == stream_op.stream) continue;
      wait(stream_op.stream, rendezvous_[static_cast<std::size_t>(other.stream)]);
    }
  }
}

void CudaStreams::fork() {
  record(*fork_, 0);
  for (std::int32_t stream = 1; stream < count(); ++stream) wait(stream, *fork_);
}

void CudaStreams::join() {
  for (std::int32_t stream = 1; stream < count(); ++stream) {
    record(joins_[static_cast<std::size_t>(stream)], stream);
    wait(0, joins_[static_cast<std::size_t>(stream)]);
  }
}

std::unique_ptr<Graph> CudaStreams::captured(const std::function<void()>& work) {
  if (!devices_.has_graphs()) return std::make_unique<Graph>();
  make_current(0);
  cuda_check(cudaStreamBeginCapture(streams_[0], cudaStreamCaptureModeRelaxed),
             "cudaStreamBeginCapture");
  bool failed = false;
  try {
    fork();
    work();
    join();
  } catch (const HardwareError&) {
    failed = true;
  }
  cudaGraph_t graph = nullptr;
  failed = cudaStreamEndCapture(streams_[0], &graph) != cudaSuccess || failed;
  cudaGraphExec_t executable = nullptr;
  if (!failed && cudaGraphInstantiate(&executable, graph, 0) != cudaSuccess) executable = nullptr;
  if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
  static_cast<void>(cudaGetLastError());
  auto whole = std::make_unique<Graph>(executable);
  if (Processes* processes = devices_.processes()) {
    // Graphs in some and streams in others would be two kinds of measurement.
    for (const std::string& one : processes->all_gather(executable == nullptr ? "none" : "graph")) {
      if (one == "none") return std::make_unique<Graph>();
    }
  }
  return whole;
}

void CudaStreams::line_up() const {
  if (devices_.processes() == nullptr) return;
  make_current(0);
  devices_.communicators().line_up(devices_, streams_[0]);
}

void CudaStreams::synchronize() const {
  Processes* processes = devices_.processes();
  if (processes == nullptr) {
    for (std::int32_t stream = 0; stream < count(); ++stream) {
      make_current(stream);
      cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }
    return;
  }
  // A kernel of NCCL that fails waits for ever. (If a process is gone MPI ends the others.)
  constexpr auto glance = std::chrono::microseconds(50);
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(30);
  for (cudaStream_t stream : streams_) {
    for (int glances = 1;; ++glances) {
      const cudaError_t state = cudaStreamQuery(stream);
      if (state == cudaSuccess) break;
      std::string trouble;
      if (state != cudaErrorNotReady) {
        trouble = cuda_error_text(static_cast<int>(state));
      } else if (glances % 1000 == 0) {
        trouble = devices_.communicators().trouble();
        if (std::chrono::steady_clock::now() > deadline) trouble = "nothing came for too long";
      }
      if (!trouble.empty()) {
        devices_.communicators().abort();
        throw LaunchError("waiting for the other processes: " + trouble);
      }
      std::this_thread::sleep_for(glance);
    }
  }
}

}  // namespace parsim::hw
