// A DAG on streams: lanes, events, collectives; replayed as a graph or issued with timed events.
#pragma once

#include <algorithm>

#include "hw/cuda/communicators.hpp"
#include "hw/cuda/engine.cuh"
#include "hw/cuda/event.cuh"
#include "hw/cuda/messages.cuh"
#include "hw/cuda/sums.cuh"
#include "hw/dispatch.hpp"
#include "hw/processes.hpp"

namespace parsim::hw {

struct Nothing {
  __host__ __device__ void operator()(std::uint32_t) const {}
};

/// The GPU's clock of nanoseconds, the same on all its multiprocessors.
__device__ inline unsigned long long global_nanoseconds() {
  unsigned long long now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}
/// A paced message begins, and holds its stream until so many nanoseconds have passed.
__global__ inline void note_time(unsigned long long* start) { *start = global_nanoseconds(); }
__global__ inline void hold_until(const unsigned long long* start, unsigned long long nanoseconds) {
  while (global_nanoseconds() - *start < nanoseconds) __nanosleep(200);
}

template <class T>
class CudaStep {
 public:
  /// like   another of the same DAG, on whose streams this one's operations run among its own
  CudaStep(const CudaDevices& devices, const ExecDag& dag, bool exact,
           const CudaStep* like = nullptr)
      : devices_(devices),
        dag_(dag),
        order_(devices.mine() ? dispatch(dag, *devices.mine()) : dispatch(dag)),
        engine_(dag, devices, exact, like == nullptr ? nullptr : &like->engine_),
        sums_(engine_, devices, dag, order_) {
    if (devices.mine()) messages_.emplace(engine_, devices, dag, order_, sums_);
    OpKernels<CudaEngine<T>> maker(engine_, dag);
    for (std::size_t i = 0; i < dag.size(); ++i) {
      const std::span<const Turn> turns = order_.turns_of(OpId{i});
      kernels_.emplace_back();
      if (turns.empty() || sums_.does(OpId{i})) continue;  // another process's, or NCCL's
      // A kernel is made for, and its rooms lie on, the device of its first turn.
      engine_.use(lane_device(turns[0]));
      if (messages_) messages_->prepare(OpId{i}, turns[0]);
      kernels_.back() = maker.of(OpId{i});
    }
    engine_.allocate_workspaces();
    owns_streams_ = like == nullptr;
    if (like != nullptr) streams_ = like->streams_;
    for (const Queue& lane : order_.lanes) {
      if (!owns_streams_) break;
      streams_.push_back(devices_.make_stream(devices_.all()[lane.device.index()]));
    }
    if (streams_.empty()) {  // a process whose device the plan leaves out
      streams_.push_back(devices_.make_stream(devices_.all()[devices.mine()->index()]));
    }
    for (std::size_t t = 0; t < order_.turns.size(); ++t) turn_ends_.emplace_back(false);
    if (devices_.paced()) {
      const Machine machine = devices_.machine();
      for (std::size_t i = 0; i < dag.size(); ++i) {
        const bool message = dag.kind(OpId{i}) == OpKind::collective ||
                             (dag.kind(OpId{i}) == OpKind::transfer &&
                              dag.record(OpId{i}).device != dag.record(OpId{i}).to);
        holds_.push_back(message ? pace(dag, OpId{i}, machine) : Seconds{});
      }
      for (const Queue& lane : order_.lanes) {
        devices_.make_current(devices_.all()[lane.device.index()]);
        starts_.emplace_back(sizeof(unsigned long long));
      }
    }
    engine_.reset();
  }
  ~CudaStep() {
    if (!owns_streams_) return;
    for (cudaStream_t stream : streams_) static_cast<void>(cudaStreamDestroy(stream));
  }
  CudaStep(const CudaStep&) = delete;
  CudaStep& operator=(const CudaStep&) = delete;

  // The backend of issue().
  void wait(std::int32_t lane, std::uint32_t turn) {
    cuda_check(cudaStreamWaitEvent(stream(lane), turn_ends_[turn].get(), 0), "cudaStreamWaitEvent");
  }
  void record(std::uint32_t turn) {
    cuda_check(cudaEventRecord(turn_ends_[turn].get(), stream(order_.turns[turn].lane)),
               "cudaEventRecord");
  }
  void run(OpId op, std::span<const Turn> turns) {
    mark(begins_, op, turns);
    const Seconds hold = holds_.empty() ? Seconds{} : holds_[op.index()];
    if (hold > Seconds{}) {
      for (const Turn& turn : turns) {
        devices_.make_current(devices_.all()[lane_device(turn).index()]);
        note_time<<<1, 1, 0, stream(turn.lane)>>>(start_of_lane(turn.lane));
      }
    }
    if (sums_.does(op)) {
      sums_.run(op, streams_);
    } else if (messages_) {
      if (!turns.empty()) run_apart(op, turns[0]);
    } else {
      const bool meet = turns.size() > 1;
      if (meet) barrier(turns);
      for (std::size_t m = 0; m < turns.size(); ++m) {
        const DeviceId device = lane_device(turns[m]);
        devices_.make_current(devices_.all()[device.index()]);
        const CudaContext context = engine_.context(device, stream(turns[m].lane));
        for (const auto& action : kernels_[op.index()][m]) action(context);
      }
      if (meet) barrier(turns);
    }
    if (hold > Seconds{}) {
      for (const Turn& turn : turns) {
        devices_.make_current(devices_.all()[lane_device(turn).index()]);
        hold_until<<<1, 1, 0, stream(turn.lane)>>>(
            start_of_lane(turn.lane), static_cast<unsigned long long>(1e9 * hold.count()));
      }
      cuda_check(cudaGetLastError(), "hold_until");
    }
    mark(ends_, op, turns);
  }

  /// The other processes' devices have come to the same step; they must have, before it is issued.
  void connect() {
    if (devices_.mine()) devices_.communicators().prepare(devices_, groups_of(dag_));
  }

  /// A step by streams, in order.
  void issue_all() { issue(dag_, order_, *this); }

  /// Time of what `work` puts on the lanes: from a graph if the libraries allow, else from streams.
  /// repeats   times that one sample does it, divided out
  std::vector<Seconds> timed(const std::function<void()>& work, int samples, int repeats) {
    const Event begin(true);
    const Event end(true);
    cudaGraphExec_t graph = captured([&] {
      for (int r = 0; r < repeats; ++r) work();
    });
    std::vector<Seconds> times;
    for (int s = -2; s < samples; ++s) {  // two to warm up
      engine_.zero();
      if (devices_.meeting() != nullptr) meet(*devices_.meeting());
      cuda_check(cudaEventRecord(begin.get(), streams_[0]), "cudaEventRecord");
      if (graph != nullptr) {
        cuda_check(cudaGraphLaunch(graph, streams_[0]), "cudaGraphLaunch");
      } else {
        fork();
        for (int r = 0; r < repeats; ++r) work();
        join();
      }
      cuda_check(cudaEventRecord(end.get(), streams_[0]), "cudaEventRecord");
      synchronize();
      if (s >= 0) times.push_back(between(begin, end) / static_cast<double>(repeats));
    }
    if (graph != nullptr) cuda_check(cudaGraphExecDestroy(graph), "cudaGraphExecDestroy");
    return times;
  }

  /// One step with an event before and after every operation.
  Timeline with_events() {
    begins_.clear();
    ends_.clear();
    for (std::size_t i = 0; i < dag_.size(); ++i) {
      begins_.emplace_back();
      ends_.emplace_back();
    }
    engine_.zero();
    if (devices_.meeting() != nullptr) meet(*devices_.meeting());
    fork();
    const std::map<DeviceId, Event> origins = record_origins();
    issue_all();
    join();
    synchronize();
    Timeline timeline;
    for (std::size_t i = 0; i < dag_.size(); ++i) {
      Span span;
      for (std::size_t m = 0; m < begins_[i].size(); ++m) {
        // A collective begins when its last member comes.
        const Event& origin = origins.at(lane_device(order_.turns_of(OpId{i})[m]));
        span.start = std::max(span.start, between(origin, begins_[i][m]));
        span.end = std::max(span.end, between(origin, ends_[i][m]));
      }
      span.end = std::max(span.start, span.end);
      timeline.spans.push_back(span);
    }
    begins_.clear();
    ends_.clear();
    return timeline;
  }

  /// Two operations over and over, each on its own lanes and so many times; of `b` nothing if there
  /// are none. Spans of the members on the device, or of the first turn if it has none there.
  std::pair<std::vector<Span>, std::vector<Span>> repeated(OpId a, Seconds time_a, int count_a,
                                                           OpId b, Seconds time_b, int count_b,
                                                           DeviceId device) {
    begins_.clear();
    ends_.clear();
    begins_.resize(dag_.size());
    ends_.resize(dag_.size());
    engine_.zero();
    fork();
    const std::map<DeviceId, Event> origins = record_origins();
    for (int i = 0, k = 0; i < count_a || k < count_b;) {
      // Whose turn is earlier, if both keep to their times.
      const bool first = k >= count_b || (i < count_a && i * time_a <= k * time_b);
      one_op(first ? a : b);
      ++(first ? i : k);
    }
    join();
    synchronize();
    const auto spans = [&](OpId op, int count) {
      const std::span<const Turn> turns = order_.turns_of(op);
      std::size_t member = 0;
      for (std::size_t m = 0; m < turns.size(); ++m) {
        if (lane_device(turns[m]) == device) member = m;
      }
      const Event& origin = origins.at(lane_device(turns[member]));
      std::vector<Span> list;
      for (int r = 0; r < count; ++r) {
        const std::size_t at = static_cast<std::size_t>(r) * turns.size() + member;
        list.push_back(
            {between(origin, begins_[op.index()][at]), between(origin, ends_[op.index()][at])});
      }
      return list;
    };
    std::pair<std::vector<Span>, std::vector<Span>> both{spans(a, count_a), spans(b, count_b)};
    begins_.clear();
    ends_.clear();
    return both;
  }

  /// A kernel of one thread that does nothing, on the first lane.
  void nothing() {
    devices_.make_current(devices_.all()[order_.lanes[0].device.index()]);
    engine_.for_each(1, Nothing{})(engine_.context(order_.lanes[0].device, streams_[0]));
  }

  void one_op(OpId op) { run(op, order_.turns_of(op)); }
  CudaEngine<T>& engine() { return engine_; }
  [[nodiscard]] const Dispatch& order() const { return order_; }
  void synchronize() {
    for (const LogicalDevice& device : devices_.all()) {
      if (device.gpu < 0) continue;
      devices_.make_current(device);
      cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }
  }

 private:
  /// Events of different GPUs have no common clock: each has an origin of its own, after the fork.
  std::map<DeviceId, Event> record_origins() {
    std::map<DeviceId, Event> origins;
    for (std::size_t lane = 0; lane < order_.lanes.size(); ++lane) {
      const DeviceId device = order_.lanes[lane].device;
      const auto [entry, fresh] = origins.try_emplace(device, true);
      if (!fresh) continue;
      devices_.make_current(devices_.all()[device.index()]);
      cuda_check(cudaEventRecord(entry->second.get(), streams_[lane]), "cudaEventRecord");
    }
    return origins;
  }

  [[nodiscard]] DeviceId lane_device(const Turn& turn) const {
    return order_.lanes[static_cast<std::size_t>(turn.lane)].device;
  }
  [[nodiscard]] cudaStream_t stream(std::int32_t lane) const {
    return streams_[static_cast<std::size_t>(lane)];
  }

  [[nodiscard]] unsigned long long* start_of_lane(std::int32_t lane) const {
    return reinterpret_cast<unsigned long long*>(starts_[static_cast<std::size_t>(lane)].get());
  }

  void mark(std::vector<std::vector<Event>>& where, OpId op, std::span<const Turn> turns) {
    if (where.empty()) return;
    for (const Turn& turn : turns) {
      devices_.make_current(devices_.all()[lane_device(turn).index()]);
      where[op.index()].emplace_back(true);
      cuda_check(cudaEventRecord(where[op.index()].back().get(), stream(turn.lane)),
                 "cudaEventRecord");
    }
  }

  /// Every lane waits for all the others.
  void barrier(std::span<const Turn> turns) {
    for (std::size_t m = 0; m < turns.size(); ++m) {
      while (meeting_.size() <= m) meeting_.emplace_back(false);
      cuda_check(cudaEventRecord(meeting_[m].get(), stream(turns[m].lane)), "cudaEventRecord");
    }
    for (const Turn& turn : turns) {
      for (std::size_t m = 0; m < turns.size(); ++m) {
        if (turns[m].lane == turn.lane) continue;
        cuda_check(cudaStreamWaitEvent(stream(turn.lane), meeting_[m].get(), 0),
                   "cudaStreamWaitEvent");
      }
    }
  }
  /// All lanes begin after, and are over before, what is on the first one.
  void fork() {
    cuda_check(cudaEventRecord(fork_.get(), streams_[0]), "cudaEventRecord");
    for (std::size_t lane = 1; lane < streams_.size(); ++lane) {
      cuda_check(cudaStreamWaitEvent(streams_[lane], fork_.get(), 0), "cudaStreamWaitEvent");
    }
  }
  void join() {
    while (joins_.size() < streams_.size()) joins_.emplace_back(false);
    for (std::size_t lane = 1; lane < streams_.size(); ++lane) {
      cuda_check(cudaEventRecord(joins_[lane].get(), streams_[lane]), "cudaEventRecord");
      cuda_check(cudaStreamWaitEvent(streams_[0], joins_[lane].get(), 0), "cudaStreamWaitEvent");
    }
  }
  /// Null if some call cannot be captured.
  cudaGraphExec_t captured(const std::function<void()>& work) {
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
    return executable;
  }

  /// What this process's device does in it: messages, then its own kernels.
  void run_apart(OpId op, const Turn& turn) {
    const DeviceId device = lane_device(turn);
    devices_.make_current(devices_.all()[device.index()]);
    const CudaContext context = engine_.context(device, stream(turn.lane));
    messages_->exchange(op, context);
    for (const auto& member : kernels_[op.index()]) {
      for (const auto& action : member) action(context);
    }
  }

  const CudaDevices& devices_;
  const ExecDag& dag_;
  Dispatch order_;
  CudaEngine<T> engine_;
  CudaSums<T> sums_;
  std::optional<CudaMessages<T>> messages_;  ///< if each device has a process of its own
  std::vector<Kernels<CudaEngine<T>>> kernels_;
  std::vector<cudaStream_t> streams_;  ///< by lane
  bool owns_streams_ = true;
  std::vector<Event> turn_ends_, meeting_, joins_;
  std::vector<std::vector<Event>> begins_, ends_;  ///< by operation, while timed
  std::vector<Seconds> holds_;                     ///< by operation, where links are paced
  std::vector<DeviceMemory> starts_;               ///< by lane: when its paced message began
  Event fork_{false};
};

}  // namespace parsim::hw
