#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <optional>

#include "core/errors.hpp"
#include "hw/cpu/engine.hpp"
#include "hw/cpu_executor.hpp"
#include "hw/host.hpp"

namespace parsim::hw {

namespace {

/// An order in which only some operations do work, one at a time: each waits for the one before.
Dispatch one_at_a_time(Dispatch order, const std::vector<OpId>& ops) {
  order.waits.clear();
  for (StreamOp& stream_op : order.stream_ops) stream_op.waits = stream_op.first_wait = 0;
  for (std::size_t i = 1; i < ops.size(); ++i) {
    const std::size_t before = ops[i - 1].index(), here = ops[i].index();
    for (std::uint32_t t = order.first_stream_op[here]; t < order.first_stream_op[here + 1]; ++t) {
      order.stream_ops[t].first_wait = static_cast<std::uint32_t>(order.waits.size());
      order.stream_ops[t].waits = 1;
      order.waits.push_back(order.first_stream_op[before]);
    }
  }
  return order;
}

/// A DAG's tensors and kernels, and steps of it.
class CpuStep {
 public:
  /// exact   as CpuEngine's
  CpuStep(const CpuCores& cores, const ExecDag& dag, bool exact = false)
      : cores_(cores), dag_(dag), order_(dispatch(dag)), engine_(dag, order_, cores, exact) {
    OpKernels<CpuEngine> maker(engine_, dag);
    for (std::size_t i = 0; i < dag.size(); ++i) {
      // A kernel runs on the threads of its first stream operation's device.
      engine_.begin(OpId{i}, device_of(order_.stream_ops_of(OpId{i})[0].stream));
      kernels_.push_back(maker.of(OpId{i}));
      rivals_.push_back(engine_.take_rivalry());
    }
    engine_.reset();
  }

  /// A step; its time begins with its first operation.
  Timeline run() { return run(order_, {}); }
  /// Only these operations, one at a time.
  Timeline run_alone(const std::vector<OpId>& ops) {
    std::vector<bool> asked(dag_.size());
    for (const OpId op : ops) asked[op.index()] = true;
    return run(one_at_a_time(order_, ops), asked);
  }
  /// Operations over and over, all at once, for so long that the scheduler gives every thread many
  /// turns. By operation at least so many samples, means of as many in a row as the longest takes.
  std::vector<std::vector<Seconds>> repeat(const std::vector<Neighbour>& group, int samples) {
    constexpr Seconds many_turns{50e-3}, shortest{1e-6};
    std::vector<std::function<void()>> works;
    std::vector<std::int32_t> streams;
    std::vector<Seconds> alone;
    const auto repeated = [&](const std::vector<std::function<void()>>& all, int count,
                              std::size_t first) {
      Clock clock(ClockKind::wall);
      return repeat_together(all, count, clock,
                             [&](std::size_t kind) { use(streams[first + kind]); });
    };
    for (std::size_t i = 0; i < group.size(); ++i) {
      const std::span<const StreamOp> stream_ops = order_.stream_ops_of(group[i].op);
      std::size_t member = 0;
      for (std::size_t m = 0; m < stream_ops.size(); ++m) {
        if (device_of(stream_ops[m].stream) == group[i].device) member = m;
      }
      streams.push_back(stream_ops[member].stream);
      works.emplace_back([this, op = group[i].op, member] { work(op, member); });
      alone.push_back(std::max(shortest, spread_of(repeated({works[i]}, 3, i)[0]).median));
    }
    const Seconds longest = *std::max_element(alone.begin(), alone.end());
    std::vector<int> in_a_row;
    for (std::size_t i = 0; i < works.size(); ++i) {
      in_a_row.push_back(static_cast<int>(longest / alone[i]));
      works[i] = [one = works[i], count = in_a_row[i]] {
        for (int r = 0; r < count; ++r) one();
      };
    }
    auto times = repeated(works, std::max(samples, static_cast<int>(many_turns / longest)), 0);
    for (std::size_t i = 0; i < times.size(); ++i) {
      for (Seconds& time : times[i]) time /= in_a_row[i];
    }
    return times;
  }
  CpuEngine& engine() { return engine_; }

 private:
  [[nodiscard]] DeviceId device_of(std::int32_t stream) const {
    return order_.streams[static_cast<std::size_t>(stream)].device;
  }
  /// Puts the calling thread where the stream's operations run.
  void use(std::int32_t stream) const {
    const Queue& queue = order_.streams[static_cast<std::size_t>(stream)];
    cores_.use(queue.device, queue.queue / 2 != static_cast<std::int32_t>(Stream::compute));
  }
  void work(OpId op, std::size_t member) {
    std::optional<std::lock_guard<std::mutex>> lock;
    if (rivals_[op.index()]) lock.emplace(rivals_lock_);
    for (const auto& action : kernels_[op.index()][member]) action();
  }
  Timeline run(const Dispatch& order, const std::vector<bool>& asked) {
    engine_.zero();
    Clock clock(ClockKind::wall);
    Timeline timeline = run_members_on_threads(
        dag_, order,
        [&](OpId op, std::size_t member) {
          if (asked.empty() || asked[op.index()]) work(op, member);
        },
        clock, [&](std::size_t stream) { use(static_cast<std::int32_t>(stream)); });
    Seconds first = timeline.spans.empty() ? Seconds{} : timeline.spans[0].start;
    for (const Span& span : timeline.spans) first = std::min(first, span.start);
    for (Span& span : timeline.spans) span = {span.start - first, span.end - first};
    return timeline;
  }

  const CpuCores& cores_;
  const ExecDag& dag_;
  Dispatch order_;
  CpuEngine engine_;
  std::vector<Kernels<CpuEngine>> kernels_;
  std::vector<bool> rivals_;  ///< by operation: adds where another may
  std::mutex rivals_lock_;
};

/// What one takes on average: threads that share a core take turns, and most operations notice
/// none.
Spread mean_of(const std::vector<Seconds>& times, const Spread& alone) {
  Seconds sum{};
  for (const Seconds time : times) sum += time;
  const Seconds mean = std::max(sum / static_cast<double>(times.size()), alone.median);
  return {mean, mean, mean, static_cast<std::int64_t>(times.size())};
}

void check_precision(const ExecDag& dag) {
  if (dag.precision == Precision::fp32 && dag.reduce_precision == Precision::fp32) return;
  throw InputError("--precision", fmt::format("{} with --hw-backend cpu", to_text(dag.precision)),
                   "accepted there: fp32");
}

}  // namespace

CpuExecutor::CpuExecutor(const std::vector<int>& partition)
    : cores_(std::make_shared<const CpuCores>(partition)) {
  hardware_.machine = cores_->machine();
  const std::vector<Device>& devices = hardware_.machine.cluster.devices;
  Bytes smallest = devices[0].memory;
  for (const Device& device : devices) smallest = std::min(smallest, device.memory);
  // Two of them lie on every device.
  hardware_.largest_message = std::min(Bytes{std::int64_t{16} << 20}, Bytes{smallest.value / 8});
  if (devices.size() < 2) return;
  std::vector<DeviceId>& all = hardware_.common_memory.emplace_back();
  for (std::size_t d = 0; d < devices.size(); ++d) all.emplace_back(d);
  const std::int64_t cache = std::max<std::int64_t>(::sysconf(_SC_LEVEL3_CACHE_SIZE), 0);
  hardware_.walk = {std::clamp(cache, std::int64_t{32} << 20, std::int64_t{128} << 20)};
  hardware_.walk = std::min(hardware_.walk, Bytes{smallest.value / 8});
}

Timeline CpuExecutor::run(const ExecDag& dag) {
  check_fits(dag, hardware_.machine);
  check_precision(dag);
  CpuStep step(*cores_, dag);
  static_cast<void>(step.run());
  return step.run();
}

std::vector<Spread> CpuExecutor::alone(const ExecDag& dag, const std::vector<OpId>& ops,
                                       int samples) {
  check_precision(dag);
  CpuStep step(*cores_, dag);
  static_cast<void>(step.run());  // tensors have the values of a step
  std::vector<std::vector<Seconds>> times(ops.size());
  for (int s = -1; s < samples; ++s) {  // one to warm up
    const Timeline timeline = step.run_alone(ops);
    for (std::size_t i = 0; s >= 0 && i < ops.size(); ++i) {
      const Span& span = timeline.spans[ops[i].index()];
      times[i].push_back(span.end - span.start);
    }
  }
  std::vector<Spread> spreads;
  for (std::vector<Seconds>& one : times) spreads.push_back(spread_of(std::move(one)));
  return spreads;
}

std::vector<std::vector<Beside>> CpuExecutor::together(
    const ExecDag& dag, const std::vector<std::vector<Neighbour>>& groups, int samples) {
  CpuStep step(*cores_, dag);
  static_cast<void>(step.run());
  std::vector<std::vector<Beside>> all;
  for (const std::vector<Neighbour>& group : groups) {
    const std::vector<std::vector<Seconds>> during = step.repeat(group, samples);
    all.emplace_back();
    for (std::size_t i = 0; i < group.size(); ++i) {
      const Spread alone = spread_of(step.repeat({group[i]}, samples).front());
      all.back().push_back({alone, mean_of(during[i], alone)});
    }
  }
  return all;
}

Measurement CpuExecutor::step(const ExecDag& dag, int steps) {
  check_precision(dag);
  CpuStep step(*cores_, dag);
  std::vector<Timeline> runs;
  std::vector<Seconds> times;
  for (int s = -2; s < steps; ++s) {  // two to warm up
    Timeline timeline = step.run();
    if (s < 0) continue;
    times.push_back(makespan(timeline));
    runs.push_back(std::move(timeline));
  }
  return measurement_of(times, runs);
}

std::string CpuExecutor::check(const ExecDag& dag) {
  check_fits(dag, hardware_.machine);
  check_precision(dag);
  HostNumbers expected(dag);
  static_cast<void>(expected.run(dispatch(dag)));
  CpuStep step(*cores_, dag, true);
  static_cast<void>(step.run());
  return worst_difference(
      expected, expected.stores(), dag.precision, tolerance(dag),
      [&](const StoreKey& key, const Region& box) { return step.engine().values(key, box); });
}

}  // namespace parsim::hw
