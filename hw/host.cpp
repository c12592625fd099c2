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
#include "core/fp8.hpp"

namespace parsim::hw {

namespace {

class ThreadRun {
 public:
  using Work = std::function<void(OpId, std::size_t member)>;

  /// each_member   members of a collective do their own work; else the last to arrive does it all
  ThreadRun(const ExecDag& dag, const Dispatch& order, const Work& work, Clock& clock,
            bool each_member)
      : order_(order),
        work_(work),
        clock_(clock),
        each_member_(each_member),
        by_stream_(order.streams.size()),
        arrived_(dag.size()),
        finished_(dag.size()),
        begun_(dag.size()),
        ended_(dag.size()) {
    timeline_.spans.resize(dag.size());
    for (std::uint32_t t = 0; t < order.stream_ops.size(); ++t) {
      by_stream_[static_cast<std::size_t>(order.stream_ops[t].stream)].push_back(t);
    }
  }

  Timeline run(const std::function<void(std::size_t)>& prepare) {
    std::vector<std::function<void()>> threads;
    for (const std::vector<std::uint32_t>& stream_ops : by_stream_) {
      threads.emplace_back([this, &stream_ops] {
        for (const std::uint32_t stream_op : stream_ops) take(stream_op);
      });
    }
    clock_.run(threads, prepare);
    if (error_) std::rethrow_exception(error_);
    return std::move(timeline_);
  }

 private:
  void take(std::uint32_t number) {
    const StreamOp& stream_op = order_.stream_ops[number];
    for (const std::uint32_t wait : order_.waits_of(stream_op)) {
      clock_.wait(ended_[order_.stream_ops[wait].op.index()]);
    }
    const std::size_t op = stream_op.op.index();
    const auto members = static_cast<std::uint32_t>(order_.stream_ops_of(stream_op.op).size());
    const bool last = arrived_[op].fetch_add(1, std::memory_order_acq_rel) + 1 == members;
    if (last) timeline_.spans[op].start = clock_.now();
    if (each_member_ && members > 1) {
      if (last) {
        clock_.set(begun_[op]);
      } else {
        clock_.wait(begun_[op]);
      }
      work(stream_op.op, number - order_.first_stream_op[op]);
      if (finished_[op].fetch_add(1, std::memory_order_acq_rel) + 1 == members) return end(op);
      return clock_.wait(ended_[op]);
    }
    if (!last) return clock_.wait(ended_[op]);
    work(stream_op.op, 0);
    end(op);
  }

  void work(OpId op, std::size_t member) {
    try {
      if (!failed_.load(std::memory_order_relaxed)) work_(op, member);
    } catch (...) {
      // The other operations end without work, so that every thread returns.
      if (!failed_.exchange(true)) error_ = std::current_exception();
    }
  }
  void end(std::size_t op) {
    timeline_.spans[op].end = clock_.now();
    clock_.set(ended_[op]);
  }

  const Dispatch& order_;
  const Work& work_;
  Clock& clock_;
  bool each_member_;
  std::vector<std::vector<std::uint32_t>> by_stream_;
  std::vector<std::atomic<std::uint32_t>> arrived_, finished_;
  std::vector<Clock::Flag> begun_, ended_;
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
  return ThreadRun(
             dag, order, [&](OpId op, std::size_t) { work(op); }, clock, false)
      .run({});
}

Timeline run_members_on_threads(const ExecDag& dag, const Dispatch& order,
                                const std::function<void(OpId, std::size_t)>& work, Clock& clock,
                                const std::function<void(std::size_t)>& prepare) {
  return ThreadRun(dag, order, work, clock, true).run(prepare);
}

std::vector<std::vector<Seconds>> repeat_together(const std::vector<std::function<void()>>& works,
                                                  int samples, Clock& clock,
                                                  const std::function<void(std::size_t)>& prepare) {
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
  clock.run(threads, prepare);
  return times;
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

namespace {

/// By operation, what it makes of a router's probabilities, if anything.
std::vector<std::optional<TensorSlice>> router_slices(const ExecDag& dag) {
  std::vector<bool> routes(dag.network.layers.size());
  for (const Layer& layer : dag.network.layers) {
    if (layer.kind.as<ExpertDispatch>() != nullptr) routes[layer.inputs.at(1).index()] = true;
  }
  const std::vector<bool> trained = trained_layers(dag.network);
  std::vector<std::optional<TensorSlice>> slices(dag.size());
  for (std::size_t i = 0; i < dag.size(); ++i) {
    if (dag.kind(OpId{i}) != OpKind::compute) continue;
    const Compute op = std::get<Compute>(dag.op(OpId{i}));
    const bool forward = op.pass == Pass::forward || op.pass == Pass::recompute;
    if (!forward || !routes[dag.work(op.work).layer.index()]) continue;
    slices[i] = compute_slices(dag, op, trained).out;
  }
  return slices;
}

}  // namespace

void HostNumbers::take_router(const TensorSlice& slice, const std::vector<double>& found) {
  const std::vector<double> own = values(slice.key, slice.region);
  const View<double> view = engine_.view(slice.key);
  Loops loops;  // row-major
  for (std::size_t a = 0; a < slice.region.rank(); ++a) {
    loops.over(a, narrow(slice.region[a].begin),
               static_cast<std::uint32_t>(slice.region[a].size()));
  }
  for (std::uint32_t i = 0; i < loops.size(); ++i) {
    const double gap = found.at(i) - own[i];
    router_gaps_ += gap * gap;
    router_numbers_ += own[i] * own[i];
    view(loops.index(i)) = found[i];
  }
}

double HostNumbers::routers_error() const {
  return router_numbers_ > 0 ? std::sqrt(router_gaps_ / router_numbers_) : 0;
}

Timeline HostNumbers::run(const Dispatch& order, const FoundNumbers& routers) {
  engine_.reset();
  router_gaps_ = router_numbers_ = 0;
  const auto router = routers ? router_slices(dag_) : std::vector<std::optional<TensorSlice>>{};
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
    if (!router.empty() && router[op.index()]) {
      const TensorSlice& slice = *router[op.index()];
      const std::lock_guard lock(routers_lock_);  // `routers` may not be safe to call at once
      take_router(slice, routers(slice.key, slice.region));
    }
  };
  Clock clock(ClockKind::wall);
  return run_on_threads(dag_, order, compute, clock);
}

double rounding_error(int mantissa_bits) { return std::ldexp(1 / std::sqrt(12.0), -mantissa_bits); }

double tolerance(const ExecDag& dag) {
  const double others = tolerance(without_fp8(dag.precision));
  if (!multiplies_in_fp8(dag.precision)) return others;
  std::vector<int> products;  // on the longest path to a layer's output
  int most = 0;
  for (std::size_t l = 0; l < dag.network.layers.size(); ++l) {
    int before = 0;
    for (const LayerId producer : dag.network.layers[l].inputs) {
      before = std::max(before, products[producer.index()]);
    }
    products.push_back(before + (multiplies_in_fp8(dag.network, LayerId{l}) ? 1 : 0));
    most = std::max(most, products.back());
  }
  const double e4m3 = rounding_error(3);
  const double gradients = dag.precision == Precision::fp8_blockwise ? e4m3 : rounding_error(2);
  return others + std::sqrt(most * (3 * e4m3 * e4m3 + gradients * gradients));
}

std::string worst_difference(HostNumbers& expected, const Stores& stores, Precision precision,
                             double tolerance, const FoundNumbers& found) {
  constexpr double least_scale = 1e-3;
  constexpr double most_of_one = 10;    ///< times as much as all of a role
  constexpr double least_share = 1e-3;  ///< of the role's squares
  if (!(expected.routers_error() <= tolerance)) {
    return fmt::format("probabilities of experts: relative error {}", expected.routers_error());
  }
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
