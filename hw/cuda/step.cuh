// A DAG on streams: lanes, events, collectives; replayed as a graph or issued with timed events.
#pragma once

#include <nccl.h>

#include <algorithm>
#include <cmath>

#include "hw/cuda/engine.cuh"
#include "hw/cuda/run.hpp"
#include "hw/dispatch.hpp"
#include "hw/host.hpp"

namespace parsim::hw {

class Event {
 public:
  explicit Event(bool timed) {
    cuda_check(cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming),
               "cudaEventCreateWithFlags");
  }
  ~Event() {
    if (event_ != nullptr) static_cast<void>(cudaEventDestroy(event_));
  }
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&&) = delete;
  [[nodiscard]] cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

[[nodiscard]] inline Seconds between(const Event& a, const Event& b) {
  float milliseconds = 0;
  cuda_check(cudaEventElapsedTime(&milliseconds, a.get(), b.get()), "cudaEventElapsedTime");
  return Seconds{1e-3 * static_cast<double>(milliseconds)};
}

/// NCCL's communicators of one group of GPUs.
class NcclGroup {
 public:
  explicit NcclGroup(const std::vector<int>& gpus) : communicators_(gpus.size()) {
    nccl_check(ncclCommInitAll(communicators_.data(), static_cast<int>(gpus.size()), gpus.data()),
               "ncclCommInitAll");
  }
  ~NcclGroup() {
    for (ncclComm_t communicator : communicators_) {
      static_cast<void>(ncclCommDestroy(communicator));
    }
  }
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;
  [[nodiscard]] ncclComm_t operator[](std::size_t member) const { return communicators_[member]; }

 private:
  std::vector<ncclComm_t> communicators_;
};

template <class T>
class CudaStep {
 public:
  CudaStep(const CudaDevices& devices, const ExecDag& dag, bool exact)
      : devices_(devices), dag_(dag), order_(dispatch(dag)), engine_(dag, devices, exact) {
    OpKernels<CudaEngine<T>> maker(engine_, dag);
    for (std::size_t i = 0; i < dag.size(); ++i) {
      // A kernel is made for, and its rooms lie on, the device of its first turn.
      engine_.use(lane_device(order_.turns_of(OpId{i})[0]));
      kernels_.push_back(maker.of(OpId{i}));
      sums_.push_back(nccl_sums(OpId{i}));
    }
    engine_.allocate_workspaces();
    for (const Queue& lane : order_.lanes) {
      streams_.push_back(devices_.make_stream(devices_.all()[lane.device.index()]));
    }
    for (std::size_t t = 0; t < order_.turns.size(); ++t) turn_ends_.emplace_back(false);
    engine_.reset();
  }
  ~CudaStep() {
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
    if (!sums_[op.index()].empty()) {
      reduce_by_nccl(op, turns);
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
    mark(ends_, op, turns);
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
    fork();
    // Events of different GPUs have no common clock: each has an origin of its own, after the fork.
    std::map<DeviceId, Event> origins;
    for (std::size_t lane = 0; lane < streams_.size(); ++lane) {
      const DeviceId device = order_.lanes[lane].device;
      const auto [entry, fresh] = origins.try_emplace(device, true);
      if (!fresh) continue;
      devices_.make_current(devices_.all()[device.index()]);
      cuda_check(cudaEventRecord(entry->second.get(), streams_[lane]), "cudaEventRecord");
    }
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

  void one_op(OpId op) { run(op, order_.turns_of(op)); }
  CudaEngine<T>& engine() { return engine_; }
  void synchronize() {
    for (const LogicalDevice& device : devices_.all()) {
      devices_.make_current(device);
      cuda_check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    }
  }

 private:
  /// Buffers of an all-reduce that NCCL can do: dense on every member.
  struct Sum {
    std::vector<T*> from, to;  ///< by member
    std::size_t count = 0;
  };

  [[nodiscard]] DeviceId lane_device(const Turn& turn) const {
    return order_.lanes[static_cast<std::size_t>(turn.lane)].device;
  }
  [[nodiscard]] cudaStream_t stream(std::int32_t lane) const {
    return streams_[static_cast<std::size_t>(lane)];
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

  /// Real GPUs add up by NCCL; partitions of one, and tensors that are not dense, by shards.
  std::vector<Sum> nccl_sums(OpId id) {
    if (devices_.partitioned() || dag_.kind(id) != OpKind::collective) return {};
    const auto op = std::get<Collective>(dag_.op(id));
    const std::vector<DeviceId>& group = dag_.group(op.group);
    if (op.kind != CollectiveKind::all_reduce || group.size() < 2) return {};
    std::vector<Sum> sums(places(dag_, group[0], op.slice).size());
    for (const DeviceId device : group) {
      const std::vector<Place> from = places(dag_, device, op.slice);
      const std::vector<Place> to = places(dag_, device, op.target);
      for (std::size_t p = 0; p < sums.size(); ++p) {
        for (const Place* place : {&from[p], &to[p]}) {
          const View<T> view = engine_.view(place->key);
          const auto dense = dense_strides(place->region, engine_.channels_last(place->key));
          for (std::size_t a = 0; a < place->region.rank(); ++a) {
            if (place->region[a].size() > 1 && view.stride[a] != dense[a]) return {};
          }
          (place == &from[p] ? sums[p].from : sums[p].to).push_back(start_of(view, place->region));
        }
        sums[p].count = static_cast<std::size_t>(from[p].region.volume());
      }
    }
    return sums;
  }

  void reduce_by_nccl(OpId op, std::span<const Turn> turns) {
    std::vector<int> gpus;
    for (const Turn& turn : turns) gpus.push_back(devices_.all()[lane_device(turn).index()].gpu);
    auto& group = groups_[gpus];
    if (!group) group = std::make_unique<NcclGroup>(gpus);
    constexpr ncclDataType_t type = sizeof(T) == 2 ? ncclBfloat16 : ncclFloat32;
    nccl_check(ncclGroupStart(), "ncclGroupStart");
    for (std::size_t m = 0; m < turns.size(); ++m) {
      for (const Sum& sum : sums_[op.index()]) {
        nccl_check(ncclAllReduce(sum.from[m], sum.to[m], sum.count, type, ncclSum, (*group)[m],
                                 stream(turns[m].lane)),
                   "ncclAllReduce");
      }
    }
    nccl_check(ncclGroupEnd(), "ncclGroupEnd");
  }

  const CudaDevices& devices_;
  const ExecDag& dag_;
  Dispatch order_;
  CudaEngine<T> engine_;
  std::vector<Kernels<CudaEngine<T>>> kernels_;
  std::vector<std::vector<Sum>> sums_;  ///< by operation; empty: our kernels
  std::vector<cudaStream_t> streams_;   ///< by lane
  std::vector<Event> turn_ends_, meeting_, joins_;
  std::vector<std::vector<Event>> begins_, ends_;  ///< by operation, while timed
  std::map<std::vector<int>, std::unique_ptr<NcclGroup>> groups_;
  Event fork_{false};
};

template <class T>
std::vector<Spread> time_alone(const CudaDevices& devices, const ExecDag& dag,
                               const std::vector<OpId>& ops, int samples) {
  constexpr int repeats = 10;
  CudaStep<T> step(devices, dag, false);
  step.issue_all();  // tensors have the values of a step
  step.synchronize();
  std::vector<Spread> spreads;
  for (const OpId op : ops) {
    spreads.push_back(spread_of(step.timed([&] { step.one_op(op); }, samples, repeats)));
  }
  return spreads;
}

template <class T>
Measurement time_steps(const CudaDevices& devices, const ExecDag& dag, int steps) {
  CudaStep<T> step(devices, dag, false);
  step.issue_all();
  step.synchronize();
  Measurement result;
  result.step = spread_of(step.timed([&] { step.issue_all(); }, steps, 1));
  std::vector<Timeline> runs;
  std::vector<Seconds> times;
  for (int s = 0; s < std::max(5, steps / 3); ++s) {
    runs.push_back(step.with_events());
    times.push_back(makespan(runs.back()));
  }
  result.step_with_events = spread_of(times);
  std::size_t typical = 0;
  const auto gap = [&](std::size_t i) {
    return std::abs((times[i] - result.step_with_events.median).count());
  };
  for (std::size_t i = 1; i < times.size(); ++i) typical = gap(i) < gap(typical) ? i : typical;
  result.timeline = runs[typical];
  return result;
}

/// The worst store beyond the tolerance, or "".
template <class T>
std::string check_numbers(const CudaDevices& devices, const ExecDag& dag, double tolerance) {
  HostNumbers expected(dag);
  static_cast<void>(expected.run(dispatch(dag)));
  CudaStep<T> step(devices, dag, true);
  step.issue_all();
  step.synchronize();
  std::string worst;
  double most = tolerance;
  for (const auto& [key, store] : step.engine().stores().all) {
    if (key.role == Role::optimizer_state) continue;
    std::vector<T> raw = step.engine().download(key);
    const View<T> view = dense_view(raw.data(), store.box, step.engine().channels_last(key));
    const std::vector<double> reference = expected.values(key, store.box);
    Loops loops;
    for (std::size_t a = 0; a < store.box.rank(); ++a) {
      loops.push(static_cast<std::int32_t>(a), narrow(store.box[a].begin),
                 static_cast<std::uint32_t>(store.box[a].size()));
    }
    double scale = 1e-3;
    double difference = 0;
    for (std::uint32_t i = 0; i < loops.size(); ++i) {
      const double here = static_cast<double>(view.wide(loops.index(i)));
      const double gap = std::abs(here - reference[i]);
      difference = std::isnan(gap) ? INFINITY : std::max(difference, gap);
      scale = std::max(scale, std::abs(reference[i]));
    }
    if (difference / scale <= most) continue;
    most = difference / scale;
    worst = "device " + std::to_string(key.device.value) + ", tensor kind " +
            std::to_string(static_cast<int>(key.tensor.kind)) + " index " +
            std::to_string(key.tensor.index) + ", role " +
            std::to_string(static_cast<int>(key.role)) + ", micro-batch " +
            std::to_string(key.micro_batch) + ": relative error " + std::to_string(most);
  }
  return worst;
}

}  // namespace parsim::hw
