#include "hw/host.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <map>
#include <tuple>

#include "core/errors.hpp"

namespace parsim::hw {

namespace {

class ThreadRun {
 public:
  ThreadRun(const ExecDag& dag, const Dispatch& order, const std::function<void(OpId)>& work,
            Clock& clock)
      : order_(order),
        work_(work),
        clock_(clock),
        by_stream_(order.streams.size()),
        arrived_(dag.size()),
        ended_(dag.size()) {
    timeline_.spans.resize(dag.size());
    for (std::uint32_t t = 0; t < order.stream_ops.size(); ++t) {
      by_stream_[static_cast<std::size_t>(order.stream_ops[t].stream)].push_back(t);
    }
  }

  Timeline run() {
    std::vector<std::function<void()>> threads;
    for (const std::vector<std::uint32_t>& stream_ops : by_stream_) {
      threads.emplace_back([this, &stream_ops] {
        for (const std::uint32_t stream_op : stream_ops) take(order_.stream_ops[stream_op]);
      });
    }
    clock_.run(threads);
    if (error_) std::rethrow_exception(error_);
    return std::move(timeline_);
  }

 private:
  void take(const StreamOp& stream_op) {
    for (const std::uint32_t wait : order_.waits_of(stream_op)) {
      clock_.wait(ended_[order_.stream_ops[wait].op.index()]);
    }
    const std::size_t op = stream_op.op.index();
    const auto members = static_cast<std::uint32_t>(order_.stream_ops_of(stream_op.op).size());
    // The last member to arrive does the work for all.
    if (arrived_[op].fetch_add(1, std::memory_order_acq_rel) + 1 < members) {
      clock_.wait(ended_[op]);
      return;
    }
    Span& span = timeline_.spans[op];
    span.start = clock_.now();
    try {
      if (!failed_.load(std::memory_order_relaxed)) work_(stream_op.op);
    } catch (...) {
      // The other operations end without work, so that every thread returns.
      if (!failed_.exchange(true)) error_ = std::current_exception();
    }
    span.end = clock_.now();
    clock_.set(ended_[op]);
  }

  const Dispatch& order_;
  const std::function<void(OpId)>& work_;
  Clock& clock_;
  std::vector<std::vector<std::uint32_t>> by_stream_;
  std::vector<std::atomic<std::uint32_t>> arrived_;
  std::vector<std::atomic<bool>> ended_;
  Timeline timeline_;
  std::atomic<bool> failed_ = false;
  std::exception_ptr error_;
};

/// The one whose tensors a process has; nothing if it has all devices'.
std::optional<DeviceId> device_of(const Processes* processes) {
  if (processes == nullptr) return std::nullopt;
  return DeviceId{processes->rank()};
}

}  // namespace

Timeline run_on_threads(const ExecDag& dag, const Dispatch& order,
                        const std::function<void(OpId)>& work, Clock& clock) {
  return ThreadRun(dag, order, work, clock).run();
}

std::vector<std::vector<Seconds>> repeat_together(const std::vector<std::function<void()>>& works,
                                                  int samples, Clock& clock) {
  std::vector<std::vector<Seconds>> times(works.size());
  std::atomic<std::size_t> unfinished = works.size();
  std::vector<std::function<void()>> threads;
  for (std::size_t w = 0; w < works.size(); ++w) {
    threads.emplace_back([&, w] {
      for (int done = 0; unfinished.load() > 0; ++done) {
        const Clock::Time start = clock.now();
        works[w]();
        const Clock::Time time = clock.now() - start;
        if (done < samples) times[w].emplace_back(time);
        if (done + 1 == samples) unfinished.fetch_sub(1);
        // Virtual time would stand still for ever.
        if (done >= samples && time == Clock::Time{}) return;
      }
    });
  }
  clock.run(threads);
  return times;
}

HostEngine::HostEngine(const ExecDag& dag, std::optional<DeviceId> mine)
    : dag_(dag), stores_(parsim::hw::stores(dag)), received_(received_gradients(dag)), mine_(mine) {
  samples_ = dag.batch / stores_.micro_batches;
  std::erase_if(stores_.all, [&](const auto& entry) { return !runs(entry.first.device); });
  for (const auto& [key, store] : stores_.all) {
    memory_[key].resize(static_cast<std::size_t>(store.box.volume()));
  }
}

View<double> HostEngine::view(const StoreKey& key) {
  const auto found = stores_.all.find(key);
  ensure(found != stores_.all.end(), "a kernel's tensor is among the DAG's stores");
  return dense_view(memory_.at(key).data(), found->second.box, false);
}

View<double> HostEngine::view_of(const TensorSlice& slice) {
  for (const auto& [mirrored, view] : mirrors_) {
    if (mirrored.key == slice.key && mirrored.region.contains(slice.region)) return view;
  }
  return view(slice.key);
}

View<double> HostEngine::state(const StoreKey& key) {
  return memory_.contains(key) ? view(key) : View<double>{};
}

double* HostEngine::scratch(std::int64_t count) {
  scratch_.push_back(std::make_unique<double[]>(static_cast<std::size_t>(count)));
  return scratch_.back().get();
}

bool HostEngine::has_rivals(const StoreKey& key) {
  const bool found = std::binary_search(received_.begin(), received_.end(), key);
  rivalry_ = rivalry_ || found;
  return found;
}

void HostEngine::reset() {
  for (auto& [key, values] : memory_) {
    std::fill(values.begin(), values.end(), 0.0);
    const auto fill = fill_of(dag_, key, stores_.all.at(key).box, samples_, view(key));
    if (fill) for_each(static_cast<std::uint32_t>(values.size()), *fill)();
  }
}

std::vector<View<double>> HostEngine::mirror(const std::vector<RemoteSlice>& remote_slices) {
  mirrors_.clear();
  std::vector<View<double>> views;
  for (const RemoteSlice& remote_slice : remote_slices) {
    const Region& region = remote_slice.slice.region;
    views.push_back(dense_view(scratch(region.volume()), region, false));
    mirrors_.emplace_back(remote_slice.slice, views.back());
  }
  return views;
}

HostNumbers::HostNumbers(const ExecDag& dag, Processes* processes)
    : dag_(dag), engine_(dag, device_of(processes)), processes_(processes) {
  check_runnable(dag, "--hw");
  const std::optional<DeviceId> mine = device_of(processes);
  OpKernels<HostEngine> maker(engine_, dag);
  for (std::size_t i = 0; i < dag.size(); ++i) {
    if (mine) {
      Messages messages;
      for (const RemoteSlice& remote_slice : remote_slices(dag, OpId{i})) {
        if (remote_slice.to == *mine) messages.in.push_back(remote_slice);
        if (remote_slice.slice.key.device == *mine) messages.out.push_back(remote_slice);
      }
      messages.mirrors = engine_.mirror(messages.in);
      messages_.push_back(std::move(messages));
    }
    kernels_.push_back(maker.of(OpId{i}));
    rivals_.push_back(engine_.take_rivalry());
  }
}

void HostNumbers::exchange_slices(OpId op) {
  const Messages& messages = messages_[op.index()];
  const auto give = [&](DeviceId to) {
    std::string bytes;
    for (const RemoteSlice& remote_slice : messages.out) {
      if (remote_slice.to != to) continue;
      const std::vector<double> part = values(remote_slice.slice.key, remote_slice.slice.region);
      bytes.append(reinterpret_cast<const char*>(part.data()), part.size() * sizeof(double));
    }
    return bytes;
  };
  const auto take = [&](DeviceId from, const std::string& bytes) {
    std::size_t at = 0;
    for (std::size_t p = 0; p < messages.in.size(); ++p) {
      const TensorSlice& slice = messages.in[p].slice;
      if (slice.key.device != from) continue;
      const auto count = static_cast<std::size_t>(slice.region.volume()) * sizeof(double);
      ensure(at + count <= bytes.size(), "a message has what its remote_slices say");
      std::memcpy(messages.mirrors[p].data, bytes.data() + at, count);  // dense and row-major
      at += count;
    }
    ensure(at == bytes.size(), "a message has no more than its remote_slices say");
  };
  exchange(*processes_, dag_, op, give, take);
}

Timeline HostNumbers::run(const Dispatch& order) {
  engine_.reset();
  const auto compute = [&](OpId op) {
    if (processes_ != nullptr) exchange_slices(op);
    const auto work = [&] {
      for (const auto& member : kernels_[op.index()]) {
        for (const auto& action : member) action();
      }
    };
    if (rivals_[op.index()]) {
      const std::lock_guard lock(rivals_lock_);
      work();
    } else {
      work();
    }
  };
  Clock clock(ClockKind::wall);
  return run_on_threads(dag_, order, compute, clock);
}

std::vector<double> HostNumbers::values(const StoreKey& key, const Region& region) {
  const View<double> view = engine_.view(key);
  Loops loops;
  for (std::size_t a = 0; a < region.rank(); ++a) {
    loops.over(a, narrow(region[a].begin), static_cast<std::uint32_t>(region[a].size()));
  }
  std::vector<double> values;
  for (std::uint32_t i = 0; i < loops.size(); ++i) values.push_back(view(loops.index(i)));
  return values;
}

std::string worst_difference(
    HostNumbers& expected, const Stores& stores, Precision precision, double tolerance,
    const std::function<std::vector<double>(const StoreKey&, const Region&)>& found) {
  constexpr double least_scale = 1e-3;
  constexpr double most_of_one = 10;    ///< times as much as all of a role
  constexpr double least_share = 1e-3;  ///< of the role's squares
  std::string worst;
  double most = tolerance;
  const auto compare = [&](const StoreKey& key, double relative) {
    if (!(relative > most)) return;  // also of what is no number
    most = relative;
    worst = fmt::format(
        "device {}, tensor kind {} index {}, role {}, micro-batch {}: relative error {}",
        key.device.value, static_cast<int>(key.tensor.kind), key.tensor.index,
        static_cast<int>(key.role), key.micro_batch, relative);
  };
  struct Norms {
    double gaps = 0, numbers = 0, worst_gaps = -1;
    StoreKey worst;
  };
  std::map<Role, Norms> roles;
  std::vector<std::tuple<StoreKey, double, double>> norms;
  for (const auto& [key, store] : stores.all) {
    if (key.role == Role::optimizer_state) continue;
    const std::vector<double> here = found(key, store.box);
    const std::vector<double> reference = expected.values(key, store.box);
    double scale = least_scale;
    double difference = 0;
    double gaps = 0;
    double own = 0;
    Norms& role = roles[key.role];
    for (std::size_t i = 0; i < reference.size(); ++i) {
      const double gap = std::abs(here.at(i) - reference[i]);
      difference = std::isnan(gap) ? INFINITY : std::max(difference, gap);
      scale = std::max(scale, std::abs(reference[i]));
      gaps += gap * gap;
      own += reference[i] * reference[i];
    }
    role.numbers += own;
    role.gaps += gaps;
    if (gaps > role.worst_gaps) {
      role.worst_gaps = gaps;
      role.worst = key;
    }
    if (precision == Precision::fp32 || std::isinf(difference)) compare(key, difference / scale);
    norms.emplace_back(key, gaps, own);
  }
  if (precision == Precision::fp32) return worst;
  for (const auto& [role, all] : roles) {
    compare(all.worst, std::sqrt(all.gaps / std::max(all.numbers, least_scale)));
  }
  // One that is wrong altogether, unless it hardly counts.
  for (const auto& [key, gaps, own] : norms) {
    const double least = std::max(least_share * roles[key.role].numbers, least_scale);
    compare(key, std::sqrt(gaps / std::max(own, least)) / most_of_one);
  }
  return worst;
}

}  // namespace parsim::hw
