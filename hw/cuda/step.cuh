// A DAG on streams: events, collectives; replayed as a graph or issued with timed events.
#pragma once

#include <algorithm>

#include "hw/cuda/communicators.hpp"
#include "hw/cuda/engine.cuh"
#include "hw/cuda/messages.cuh"
#include "hw/cuda/streams.cuh"
#include "hw/dispatch.hpp"
#include "hw/processes.hpp"

namespace parsim::hw {

struct Nothing {
  __host__ __device__ void operator()(std::uint32_t) const {}
};

/// A stream is held until so many nanoseconds have passed since something began.
__global__ inline void note_time(unsigned long long* start) { *start = global_nanoseconds(); }
__global__ inline void hold_until(const unsigned long long* start, unsigned long long nanoseconds) {
  while (global_nanoseconds() - *start < nanoseconds) __nanosleep(200);
}

template <class T>
class CudaStep {
 public:
  /// like   another of the same DAG, on whose streams this one's operations run among its own
  CudaStep(const CudaDevices& devices, const ExecDag& dag, const MemoryRules& rules, bool exact,
           const CudaStep* like = nullptr)
      : devices_(devices),
        dag_(dag),
        order_(order_of(devices, dag)),
        engine_(dag, devices, order_, rules, exact, like == nullptr ? nullptr : &like->engine_),
        messages_(engine_, devices, dag, order_),
        streams_(devices, order_, like == nullptr ? nullptr : &like->streams_) {
    OpKernels<CudaEngine<T>> maker(engine_, dag);
    for (std::size_t i = 0; i < dag.size(); ++i) {
      const std::span<const StreamOp> stream_ops = order_.stream_ops_of(OpId{i});
      kernels_.emplace_back();
      zeros_.emplace_back();
      if (stream_ops.empty()) continue;  // another process's
      engine_.begin(OpId{i});
      // A kernel is made for, and its buffers lie on, the device of its first stream operation.
      engine_.use(streams_.device(stream_ops[0].stream));
      if (messages_.does(OpId{i})) {
        messages_.prepare(OpId{i});
      } else {
        kernels_.back() = maker.of(OpId{i});
      }
      for (auto& [device, action] : engine_.zeros()) {
        std::size_t member = 0;
        for (std::size_t m = 0; m < stream_ops.size(); ++m) {
          if (streams_.device(stream_ops[m].stream) == device) member = m;
        }
        zeros_.back().emplace_back(member, std::move(action));
      }
    }
    engine_.allocate_workspaces();
    for (const StreamOp& stream_op : order_.stream_ops)
      ends_of_stream_ops_.push_back(streams_.event(stream_op.stream, false));
    if (devices_.throttled()) {
      const Machine machine = devices_.machine();
      for (std::size_t i = 0; i < dag.size(); ++i) {
        const bool message = dag.kind(OpId{i}) == OpKind::collective ||
                             (dag.kind(OpId{i}) == OpKind::transfer &&
                              dag.record(OpId{i}).device != dag.record(OpId{i}).to);
        holds_.push_back(message ? modelled_duration(dag, OpId{i}, machine) : Seconds{});
      }
      for (std::size_t stream = 0; stream < order_.streams.size(); ++stream) {
        streams_.make_current(static_cast<std::int32_t>(stream));
        starts_.emplace_back(sizeof(unsigned long long));
      }
    }
    if (!devices_.mine()) connect();
    engine_.reset();
  }
  CudaStep(const CudaStep&) = delete;
  CudaStep& operator=(const CudaStep&) = delete;

  // The backend of issue().
  void wait(std::int32_t stream, std::uint32_t stream_op) {
    streams_.wait(stream, ends_of_stream_ops_[stream_op]);
  }
  void record(std::uint32_t stream_op) {
    streams_.record(ends_of_stream_ops_[stream_op], order_.stream_ops[stream_op].stream);
  }
  void run(OpId op, std::span<const StreamOp> stream_ops) {
    if (stream_ops.empty()) return;  // another process's
    mark(begins_, op, stream_ops);
    for (const auto& [member, action] : zeros_[op.index()]) {
      const std::int32_t stream = stream_ops[member].stream;
      action(context(stream));
    }
    const Seconds hold = holds_.empty() ? Seconds{} : holds_[op.index()];
    if (hold > Seconds{}) note_begin(stream_ops);
    if (messages_.does(op)) {
      messages_.run(op, [this](std::int32_t stream) { return context(stream); });
    } else {
      const bool several = stream_ops.size() > 1;
      if (several) streams_.barrier(stream_ops);
      for (std::size_t m = 0; m < stream_ops.size(); ++m) {
        const CudaContext on = context(stream_ops[m].stream);
        for (const auto& action : kernels_[op.index()][m]) action(on);
      }
      if (several) streams_.barrier(stream_ops);
    }
    if (hold > Seconds{}) hold_back(stream_ops, hold);
    mark(ends_, op, stream_ops);
  }

  /// Devices connect for the DAG's operations; all processes do, before one issues a step.
  void connect() { devices_.communicators().prepare(devices_, messages_.communicator_keys()); }

  /// A step by streams, in order.
  void issue_all() { issue(dag_, order_, *this); }

  /// The same when no step came before it.
  void issue_first() {
    engine_.look_first(true);
    issue_all();
    engine_.look_first(false);
  }

  /// Time of what `work` puts on the streams: as a graph if the libraries allow, else call by call.
  /// repeats   times that one sample does it, divided out
  std::vector<Seconds> timed(const std::function<void()>& work, int samples, int repeats) {
    const Event begin = streams_.event(0, true);
    const Event end = streams_.event(0, true);
    const auto graph = streams_.captured([&] {
      for (int r = 0; r < repeats; ++r) work();
    });
    std::vector<Seconds> times;
    Seconds hold{};
    for (int s = -2; s < samples; ++s) {  // two to warm up
      engine_.zero();
      hold_first(hold);
      streams_.line_up();
      streams_.make_current(0);
      streams_.record(begin, 0);
      if (graph->get() != nullptr) {
        cuda_check(cudaGraphLaunch(graph->get(), streams_.handle(0)), "cudaGraphLaunch");
      } else {
        streams_.fork();
        for (int r = 0; r < repeats; ++r) work();
        streams_.join();
      }
      streams_.record(end, 0);
      streams_.synchronize();
      const Seconds all = between(begin, end);
      if (s >= 0) times.push_back(all / static_cast<double>(repeats));
      // A graph, and an operation that is repeated, is there when it begins; a step without a graph
      // is issued while it runs.
      if (graph->get() != nullptr || repeats > 1) {
        hold = std::min(std::max({hold, hold_margin * all, least_hold}), longest_hold);
      }
    }
    return times;
  }

  /// One step with an event before and after every operation. From the second time on its streams
  /// begin when it has been issued, or as much of it as they take (about a thousand kernels each).
  Timeline with_events() {
    const bool first = issue_time_ == Seconds{};
    begins_.clear();
    ends_.clear();
    for (std::size_t i = 0; i < dag_.size(); ++i) {
      begins_.emplace_back();
      ends_.emplace_back();
    }
    engine_.zero();
    hold_first(issue_time_);
    streams_.line_up();
    streams_.fork();
    const std::map<DeviceId, Event> origins = streams_.origins();
    issue_all();
    streams_.join();
    streams_.synchronize();
    Timeline timeline;
    for (std::size_t i = 0; i < dag_.size(); ++i) {
      Span span;
      for (std::size_t m = 0; m < begins_[i].size(); ++m) {
        // A collective begins when its last member comes.
        const Event& origin = origins.at(streams_.device(order_.stream_ops_of(OpId{i})[m].stream));
        span.start = std::max(span.start, between(origin, begins_[i][m]));
        span.end = std::max(span.end, between(origin, ends_[i][m]));
      }
      span.end = std::max(span.start, span.end);
      timeline.spans.push_back(span);
      // Whatever is slower, the host or the devices, it has been as fast as this.
      if (first) issue_time_ = std::max(issue_time_, hold_margin * span.end);
    }
    begins_.clear();
    ends_.clear();
    return timeline;
  }

  /// An operation that is repeated: so many times, of which each takes about so long.
  struct Repeats {
    Neighbour what;
    Seconds time{};
    int count = 0;
  };
  /// Operations over and over, each on its own streams. By operation, the spans of its member on
  /// the device, or of its first stream operation if it has none there.
  std::vector<std::vector<Span>> repeated(const std::vector<Repeats>& all) {
    Seconds last{};
    for (const std::vector<Span>& spans : repeated_once(all, {})) {
      last = std::max(last, spans.back().end);
    }
    return repeated_once(all, hold_margin * last);
  }

  /// A kernel of one thread that does nothing, on the first stream.
  void nothing() {
    streams_.make_current(0);
    engine_.for_each(1, Nothing{})(engine_.context(streams_.device(0), streams_.handle(0)));
  }

  void one_op(OpId op) { run(op, order_.stream_ops_of(op)); }
  CudaEngine<T>& engine() { return engine_; }
  /// Bytes that this has taken of the devices that this process runs; 0 of the others.
  [[nodiscard]] std::vector<std::int64_t> device_bytes() const {
    std::vector<std::int64_t> all;
    for (std::size_t d = 0; d < static_cast<std::size_t>(engine_.stores().devices); ++d) {
      const DeviceId device{d};
      all.push_back(devices_.runs(device) ? engine_.bytes(device).value + messages_.bytes(device)
                                          : 0);
    }
    return all;
  }
  [[nodiscard]] const Dispatch& order() const { return order_; }
  void synchronize() { streams_.synchronize(); }

 private:
  static constexpr double hold_margin = 1.2;
  static constexpr Seconds least_hold{100e-6};
  static constexpr Seconds longest_hold{20e-3};  // graphs of thousands of kernels launch in less

  /// The first stream waits so long, and what is forked from it too.
  void hold_first(Seconds hold) {
    if (hold == Seconds{}) return;
    streams_.make_current(0);
    if (hold_start_.get() == nullptr) hold_start_ = DeviceMemory(sizeof(unsigned long long));
    note_start(0, hold_start_);
    hold_since(hold_start_, 0, hold);
  }

  std::vector<std::vector<Span>> repeated_once(const std::vector<Repeats>& all, Seconds hold) {
    begins_.clear();
    ends_.clear();
    begins_.resize(dag_.size());
    ends_.resize(dag_.size());
    engine_.zero();
    hold_first(hold);
    streams_.fork();
    const std::map<DeviceId, Event> origins = streams_.origins();
    std::vector<int> done(all.size());
    while (true) {
      // Whichever is due first, if all keep to their times.
      std::size_t next = all.size();
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (done[i] == all[i].count) continue;
        if (next == all.size() || done[i] * all[i].time < done[next] * all[next].time) next = i;
      }
      if (next == all.size()) break;
      one_op(all[next].what.op);
      ++done[next];
    }
    streams_.join();
    streams_.synchronize();
    std::vector<std::vector<Span>> lists;
    for (const Repeats& one : all) {
      const std::size_t op = one.what.op.index();
      const std::span<const StreamOp> stream_ops = order_.stream_ops_of(one.what.op);
      std::size_t member = 0;
      for (std::size_t m = 0; m < stream_ops.size(); ++m) {
        if (streams_.device(stream_ops[m].stream) == one.what.device) member = m;
      }
      const Event& origin = origins.at(streams_.device(stream_ops[member].stream));
      std::vector<Span>& list = lists.emplace_back();
      for (int r = 0; r < one.count; ++r) {
        const std::size_t at = static_cast<std::size_t>(r) * stream_ops.size() + member;
        list.push_back({between(origin, begins_[op][at]), between(origin, ends_[op][at])});
      }
    }
    begins_.clear();
    ends_.clear();
    return lists;
  }

  void mark(std::vector<std::vector<Event>>& where, OpId op, std::span<const StreamOp> stream_ops) {
    if (where.empty()) return;
    for (const StreamOp& stream_op : stream_ops) {
      where[op.index()].push_back(streams_.event(stream_op.stream, true));
      streams_.record(where[op.index()].back(), stream_op.stream);
    }
  }

  void note_start(std::int32_t stream, const DeviceMemory& start) {
    streams_.make_current(stream);
    launch(note_time, 1, 1, streams_.handle(stream),
           reinterpret_cast<unsigned long long*>(start.get()));
  }
  void hold_since(const DeviceMemory& start, std::int32_t stream, Seconds hold) {
    streams_.make_current(stream);
    launch(hold_until, 1, 1, streams_.handle(stream),
           reinterpret_cast<unsigned long long*>(start.get()),
           static_cast<unsigned long long>(1e9 * hold.count()));
  }
  [[nodiscard]] const DeviceMemory& start_of(const StreamOp& stream_op) const {
    return starts_[static_cast<std::size_t>(stream_op.stream)];
  }
  /// A throttled message begins when all its members have come, and ends for all at once.
  void note_begin(std::span<const StreamOp> stream_ops) {
    if (stream_ops.size() > 1) streams_.barrier(stream_ops);
    for (const StreamOp& stream_op : stream_ops) note_start(stream_op.stream, start_of(stream_op));
  }
  void hold_back(std::span<const StreamOp> stream_ops, Seconds hold) {
    for (const StreamOp& stream_op : stream_ops)
      hold_since(start_of(stream_op), stream_op.stream, hold);
    if (stream_ops.size() > 1) streams_.barrier(stream_ops);
  }

  /// Whole GPUs send and receive; a part of one is its sender's and writes to the other part
  /// itself.
  static Dispatch order_of(const CudaDevices& devices, const ExecDag& dag) {
    if (devices.mine()) return dispatch(dag, *devices.mine());
    return dispatch(dag, devices.partitioned() ? TransferEnds::sender : TransferEnds::both);
  }
  /// The stream's, whose device is current from now on.
  CudaContext context(std::int32_t stream) const {
    streams_.make_current(stream);
    return engine_.context(streams_.device(stream), streams_.handle(stream));
  }

  const CudaDevices& devices_;
  const ExecDag& dag_;
  Dispatch order_;
  CudaEngine<T> engine_;
  CudaMessages<T> messages_;
  CudaStreams streams_;
  std::vector<Kernels<CudaEngine<T>>> kernels_;
  /// By operation: what begins as zero, and by which of its stream operations.
  std::vector<std::vector<std::pair<std::size_t, typename CudaEngine<T>::Action>>> zeros_;
  std::vector<Event> ends_of_stream_ops_;
  std::vector<std::vector<Event>> begins_, ends_;  ///< by operation, while timed
  std::vector<Seconds> holds_;                     ///< by operation, where links are throttled
  std::vector<DeviceMemory> starts_;               ///< by stream: when its throttled message began
  DeviceMemory hold_start_;
  Seconds issue_time_{};  ///< as long as issuing a step with events takes, or longer
};

}  // namespace parsim::hw
