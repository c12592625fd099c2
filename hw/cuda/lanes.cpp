#include "hw/cuda/lanes.cuh"

#include <algorithm>
#include <chrono>
#include <thread>

#include "core/dag_traffic.hpp"
#include "hw/cuda/communicators.hpp"
#include "hw/rendezvous.hpp"

namespace parsim::hw {

Lanes::Lanes(const CudaDevices& devices, const Dispatch& order, const Lanes* like)
    : devices_(devices), owns_(like == nullptr) {
  for (const Queue& lane : order.lanes) homes_.push_back(lane.device);
  if (homes_.empty()) homes_.push_back(devices.mine().value_or(DeviceId{0}));
  if (like != nullptr) streams_ = like->streams_;
  for (const DeviceId home : homes_) {
    if (owns_) streams_.push_back(devices.make_stream(devices.all()[home.index()]));
  }
  for (std::int32_t lane = 0; lane < count(); ++lane) {
    rendezvous_.push_back(event(lane, false));
    joins_.push_back(event(lane, false));
  }
  fork_ = std::make_unique<Event>(event(0, false));
}

Lanes::~Lanes() {
  if (!owns_) return;
  for (cudaStream_t stream : streams_) static_cast<void>(cudaStreamDestroy(stream));
}

void Lanes::make_current(std::int32_t lane) const {
  devices_.make_current(devices_.all()[device(lane).index()]);
}

Event Lanes::event(std::int32_t lane, bool timed) const {
  make_current(lane);
  return Event(timed);
}

void Lanes::record(const Event& event, std::int32_t lane) const {
  cuda_check(cudaEventRecord(event.get(), stream(lane)), "cudaEventRecord");
}

void Lanes::wait(std::int32_t lane, const Event& event) const {
  cuda_check(cudaStreamWaitEvent(stream(lane), event.get(), 0), "cudaStreamWaitEvent");
}

std::map<DeviceId, Event> Lanes::origins() const {
  std::map<DeviceId, Event> origins;
  for (std::int32_t lane = 0; lane < count(); ++lane) {
    if (origins.contains(device(lane))) continue;
    const auto entry = origins.emplace(device(lane), event(lane, true)).first;
    // Partitions of one GPU have one clock, and begin together.
    record(entry->second, devices_.partitioned() ? 0 : lane);
  }
  return origins;
}

void Lanes::barrier(std::span<const Turn> turns) {
  for (const Turn& turn : turns)
    record(rendezvous_[static_cast<std::size_t>(turn.lane)], turn.lane);
  for (const Turn& turn : turns) {
    for (const Turn& other : turns) {
      if (other.lane == turn.lane) continue;
      wait(turn.lane, rendezvous_[static_cast<std::size_t>(other.lane)]);
    }
  }
}

void Lanes::fork() {
  record(*fork_, 0);
  for (std::int32_t lane = 1; lane < count(); ++lane) wait(lane, *fork_);
}

void Lanes::join() {
  for (std::int32_t lane = 1; lane < count(); ++lane) {
    record(joins_[static_cast<std::size_t>(lane)], lane);
    wait(0, joins_[static_cast<std::size_t>(lane)]);
  }
}

std::unique_ptr<Graph> Lanes::captured(const std::function<void()>& work) {
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
  if (Rendezvous* rendezvous = devices_.rendezvous()) {
    // Graphs in some and streams in others would be two kinds of measurement.
    for (const std::string& one :
         rendezvous->all_gather(executable == nullptr ? "none" : "graph")) {
      if (one == "none") return std::make_unique<Graph>();
    }
  }
  return whole;
}

void Lanes::line_up() const {
  if (devices_.rendezvous() == nullptr) return;
  make_current(0);
  devices_.communicators().line_up(devices_, streams_[0]);
}

void Lanes::synchronize() const {
  Rendezvous* rendezvous = devices_.rendezvous();
  if (rendezvous == nullptr) {
    for (std::int32_t lane = 0; lane < count(); ++lane) {
      make_current(lane);
      cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }
    return;
  }
  // A kernel of NCCL waits for ever for a process that is gone.
  constexpr auto glance = std::chrono::microseconds(50);
  const auto deadline = std::chrono::steady_clock::now() + rendezvous->timeout();
  for (cudaStream_t stream : streams_) {
    for (int glances = 1;; ++glances) {
      const cudaError_t state = cudaStreamQuery(stream);
      if (state == cudaSuccess) break;
      std::string trouble;
      if (state != cudaErrorNotReady) {
        trouble = cuda_error_text(static_cast<int>(state));
      } else if (glances % 1000 == 0) {
        trouble = devices_.communicators().trouble();
        if (trouble.empty() && rendezvous->peer_disconnected()) trouble = "another process left";
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
