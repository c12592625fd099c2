// A step's CUDA streams and what orders them among each other: events, forks and joins,
// graphs, the beginning of a step in several processes.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "hw/cuda/devices.hpp"
#include "hw/cuda/event.cuh"
#include "hw/dispatch.hpp"

namespace parsim::hw {

/// A graph of captured work; empty if it could not be captured.
class Graph {
 public:
  explicit Graph(cudaGraphExec_t executable = nullptr) : executable_(executable) {}
  ~Graph() {
    if (executable_ != nullptr) static_cast<void>(cudaGraphExecDestroy(executable_));
  }
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  [[nodiscard]] cudaGraphExec_t get() const { return executable_; }

 private:
  cudaGraphExec_t executable_ = nullptr;
};

class CudaStreams {
 public:
  /// like   others of the same order, whose streams these are, too, and which outlive these
  CudaStreams(const CudaDevices& devices, const Dispatch& order, const CudaStreams* like);
  ~CudaStreams();
  CudaStreams(const CudaStreams&) = delete;
  CudaStreams& operator=(const CudaStreams&) = delete;

  [[nodiscard]] const std::vector<cudaStream_t>& handles() const { return streams_; }
  [[nodiscard]] cudaStream_t handle(std::int32_t stream) const {
    return streams_[static_cast<std::size_t>(stream)];
  }
  /// Of a stream; a device that the plan leaves out has one stream all the same.
  [[nodiscard]] DeviceId device(std::int32_t stream) const {
    return homes_[static_cast<std::size_t>(stream)];
  }
  void make_current(std::int32_t stream) const;
  /// An event for this stream: events and streams belong to one device.
  [[nodiscard]] Event event(std::int32_t stream, bool timed) const;
  void record(const Event& event, std::int32_t stream) const;
  void wait(std::int32_t stream, const Event& event) const;
  /// Events of different devices have no common clock: each has an origin of its own, recorded now.
  [[nodiscard]] std::map<DeviceId, Event> origins() const;

  /// The streams of the operations wait for each other.
  void barrier(std::span<const StreamOp> stream_ops);
  /// All streams begin after, and are over before, what is on the first one.
  void fork();
  void join();
  /// What the work puts on the streams. Empty if a call cannot be captured, in any process.
  [[nodiscard]] std::unique_ptr<Graph> captured(const std::function<void()>& work);

  /// The first stream goes on when all processes' first streams have come here.
  void line_up() const;
  /// Returns when all streams are done. In several processes: throws LaunchError, and gives up what
  /// is under way, when another one is gone or nothing comes for too long.
  void synchronize() const;

 private:
  [[nodiscard]] std::int32_t count() const { return static_cast<std::int32_t>(streams_.size()); }

  const CudaDevices& devices_;
  bool owns_ = true;
  std::vector<cudaStream_t> streams_;
  std::vector<DeviceId> homes_;            ///< by stream
  std::vector<Event> rendezvous_, joins_;  ///< by stream
  std::unique_ptr<Event> fork_;
};

}  // namespace parsim::hw
