// A DAG on streams: lanes, events, collectives; replayed as a graph or issued with timed events.
#pragma once

#include <algorithm>

#include "hw/cuda/communicators.hpp"
#include "hw/cuda/engine.cuh"
#include "hw/cuda/lanes.cuh"
#include "hw/cuda/messages.cuh"
#include "hw/cuda/sums.cuh"
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
  CudaStep(const CudaDevices& devices, const ExecDag& dag, bool exact,
           const CudaStep* like = nullptr)
      : devices_(devices),
        dag_(dag),
        order_(devices.mine() ? dispatch(dag, *devices.mine()) : dispatch(dag)),
        engine_(dag, devices, exact, like == nullptr ? nullptr : &like->engine_),
        sums_(engine_, devices, dag, order_),
        lanes_(devices, order_, like == nullptr ? nullptr : &like->lanes_) {
    if (devices.mine()) messages_.emplace(engine_, devices, dag, order_, sums_);
    OpKernels<CudaEngine<T>> maker(engine_, dag);
    for (std::size_t i = 0; i < dag.size(); ++i) {
      const std::span<const Turn> turns = order_.turns_of(OpId{i});
      kernels_.emplace_back();
      if (turns.empty() || sums_.does(OpId{i})) continue;  // another process's, or NCCL's
      // A kernel is made for, and its rooms lie on, the device of its first turn.
      engine_.use(lanes_.device(turns[0].lane));
      if (messages_) messages_->prepare(OpId{i}, turns[0]);
      kernels_.back() = maker.of(OpId{i});
    }
    engine_.allocate_workspaces();
    for (const Turn& turn : order_.turns) turn_ends_.push_back(lanes_.event(turn.lane, false));
    if (devices_.throttled()) {
      const Machine machine = devices_.machine();
      for (std::size_t i = 0; i < dag.size(); ++i) {
        const bool message = dag.kind(OpId{i}) == OpKind::collective ||
                             (dag.kind(OpId{i}) == OpKind::transfer &&
                              dag.record(OpId{i}).device != dag.record(OpId{i}).to);
        holds_.push_back(message ? modelled_duration(dag, OpId{i}, machine) : Seconds{});
      }
      for (std::size_t lane = 0; lane < order_.lanes.size(); ++lane) {
        lanes_.make_current(static_cast<std::int32_t>(lane));
        starts_.emplace_back(sizeof(unsigned long long));
      }
    }
    engine_.reset();
  }
  CudaStep(const CudaStep&) = delete;
  CudaStep& operator=(const CudaStep&) = delete;

  // The backend of issue().
  void wait(std::int32_t lane, std::uint32_t turn) { lanes_.wait(lane, turn_ends_[turn]); }
  void record(std::uint32_t turn) { lanes_.record(turn_ends_[turn], order_.turns[turn].lane); }
  void run(OpId op, std::span<const Turn> turns) {
    mark(begins_, op, turns);
    const Seconds hold = holds_.empty() ? Seconds{} : holds_[op.index()];
    if (hold > Seconds{}) note_begin(turns);
    if (sums_.does(op)) {
      sums_.run(op, lanes_.streams());
    } else if (messages_) {
      if (!turns.empty()) run_apart(op, turns[0]);
    } else {
      const bool several = turns.size() > 1;
      if (several) lanes_.barrier(turns);
      for (std::size_t m = 0; m < turns.size(); ++m) {
        lanes_.make_current(turns[m].lane);
        const CudaContext context =
            engine_.context(lanes_.device(turns[m].lane), lanes_.stream(turns[m].lane));
        for (const auto& action : kernels_[op.index()][m]) action(context);
      }
      if (several) lanes_.barrier(turns);
    }
    if (hold > Seconds{}) hold_back(turns, hold);
    mark(ends_, op, turns);
  }

  /// Processes connect for the DAG's operations; all of them do, before one issues a step.
  void connect() {
    if (devices_.mine()) devices_.communicators().prepare(devices_, communicator_keys_of(dag_));
  }

  /// A step by streams, in order.
  void issue_all() { issue(dag_, order_, *this); }

  /// Time of what `work` puts on the lanes: from a graph if the libraries allow, else from streams.
  /// repeats   times that one sample does it, divided out
  std::vector<Seconds> timed(const std::function<void()>& work, int samples, int repeats) {
    const Event begin = lanes_.event(0, true);
    const Event end = lanes_.event(0, true);
    const auto graph = lanes_.captured([&] {
      for (int r = 0; r < repeats; ++r) work();
    });
    std::vector<Seconds> times;
    Seconds hold{};
    for (int s = -2; s < samples; ++s) {  // two to warm up
      engine_.zero();
      hold_first(hold);
      lanes_.line_up();
      lanes_.make_current(0);
      lanes_.record(begin, 0);
      if (graph->get() != nullptr) {
        cuda_check(cudaGraphLaunch(graph->get(), lanes_.stream(0)), "cudaGraphLaunch");
      } else {
        lanes_.fork();
        for (int r = 0; r < repeats; ++r) work();
        lanes_.join();
      }
      lanes_.record(end, 0);
      lanes_.synchronize();
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

  /// One step with an event before and after every operation. From the second time on its lanes
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
    lanes_.line_up();
    lanes_.fork();
    const std::map<DeviceId, Event> origins = lanes_.origins();
    issue_all();
    lanes_.join();
    lanes_.synchronize();
    Timeline timeline;
    for (std::size_t i = 0; i < dag_.size(); ++i) {
      Span span;
      for (std::size_t m = 0; m < begins_[i].size(); ++m) {
        // A collective begins when its last member comes.
        const Event& origin = origins.at(lanes_.device(order_.turns_of(OpId{i})[m].lane));
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
  /// Operations over and over, each on its own lanes. By operation, the spans of its member on the
  /// device, or of its first turn if it has none there.
  std::vector<std::vector<Span>> repeated(const std::vector<Repeats>& all) {
    Seconds last{};
    for (const std::vector<Span>& spans : repeated_once(all, {})) {
      last = std::max(last, spans.back().end);
    }
    return repeated_once(all, hold_margin * last);
  }

  /// A kernel of one thread that does nothing, on the first lane.
  void nothing() {
    lanes_.make_current(0);
    engine_.for_each(1, Nothing{})(engine_.context(lanes_.device(0), lanes_.stream(0)));
  }

  void one_op(OpId op) { run(op, order_.turns_of(op)); }
  CudaEngine<T>& engine() { return engine_; }
  [[nodiscard]] const Dispatch& order() const { return order_; }
  void synchronize() { lanes_.synchronize(); }

 private:
  static constexpr double hold_margin = 1.2;
  static constexpr Seconds least_hold{100e-6};
  static constexpr Seconds longest_hold{20e-3};  // graphs of thousands of kernels launch in less

  /// The first lane waits so long, and what is forked from it too.
  void hold_first(Seconds hold) {
    if (hold == Seconds{}) return;
    lanes_.make_current(0);
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
    lanes_.fork();
    const std::map<DeviceId, Event> origins = lanes_.origins();
    std::vector<int> done(all.size());
    while (true) {
      // Whose turn is earliest, if all keep to their times.
      std::size_t next = all.size();
      for (std::size_t i = 0; i < all.size(); ++i) {
        if (done[i] == all[i].count) continue;
        if (next == all.size() || done[i] * all[i].time < done[next] * all[next].time) next = i;
      }
      if (next == all.size()) break;
      one_op(all[next].what.op);
      ++done[next];
    }
    lanes_.join();
    lanes_.synchronize();
    std::vector<std::vector<Span>> lists;
    for (const Repeats& one : all) {
      const std::size_t op = one.what.op.index();
      const std::span<const Turn> turns = order_.turns_of(one.what.op);
      std::size_t member = 0;
      for (std::size_t m = 0; m < turns.size(); ++m) {
        if (lanes_.device(turns[m].lane) == one.what.device) member = m;
      }
      const Event& origin = origins.at(lanes_.device(turns[member].lane));
      std::vector<Span>& list = lists.emplace_back();
      for (int r = 0; r < one.count; ++r) {
        const std::size_t at = static_cast<std::size_t>(r) * turns.size() + member;
        list.push_back({between(origin, begins_[op][at]), between(origin, ends_[op][at])});
      }
    }
    begins_.clear();
    ends_.clear();
    return lists;
  }

  void mark(std::vector<std::vector<Event>>& where, OpId op, std::span<const Turn> turns) {
    if (where.empty()) return;
    for (const Turn& turn : turns) {
      where[op.index()].push_back(lanes_.event(turn.lane, true));
      lanes_.record(where[op.index()].back(), turn.lane);
    }
  }

  void note_start(std::int32_t lane, const DeviceMemory& start) {
    lanes_.make_current(lane);
    launch(note_time, 1, 1, lanes_.stream(lane),
           reinterpret_cast<unsigned long long*>(start.get()));
  }
  void hold_since(const DeviceMemory& start, std::int32_t lane, Seconds hold) {
    lanes_.make_current(lane);
    launch(hold_until, 1, 1, lanes_.stream(lane),
           reinterpret_cast<unsigned long long*>(start.get()),
           static_cast<unsigned long long>(1e9 * hold.count()));
  }
  [[nodiscard]] const DeviceMemory& start_of(const Turn& turn) const {
    return starts_[static_cast<std::size_t>(turn.lane)];
  }
  /// A throttled message begins when all its members have come.
  void note_begin(std::span<const Turn> turns) {
    if (turns.size() > 1) lanes_.barrier(turns);
    for (const Turn& turn : turns) note_start(turn.lane, start_of(turn));
  }
  void hold_back(std::span<const Turn> turns, Seconds hold) {
    for (const Turn& turn : turns) hold_since(start_of(turn), turn.lane, hold);
  }

  /// What this process's device does in it: messages, then its own kernels.
  void run_apart(OpId op, const Turn& turn) {
    lanes_.make_current(turn.lane);
    const CudaContext context = engine_.context(lanes_.device(turn.lane), lanes_.stream(turn.lane));
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
  Lanes lanes_;
  std::optional<CudaMessages<T>> messages_;  ///< if each device has a process of its own
  std::vector<Kernels<CudaEngine<T>>> kernels_;
  std::vector<Event> turn_ends_;
  std::vector<std::vector<Event>> begins_, ends_;  ///< by operation, while timed
  std::vector<Seconds> holds_;                     ///< by operation, where links are throttled
  std::vector<DeviceMemory> starts_;               ///< by lane: when its throttled message began
  DeviceMemory hold_start_;
  Seconds issue_time_{};  ///< as long as issuing a step with events takes, or longer
};

}  // namespace parsim::hw
