#include "hw/host_executor.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/errors.hpp"
#include "hw/host.hpp"
#include "hw/processes.hpp"
#include "hw/tensor_slices.hpp"

namespace parsim::hw {

namespace {

// Milliseconds: several processes sleep by the wall clock, whose late wake-ups must not matter.
constexpr Seconds overhead{1e-3};
constexpr FlopsPerSecond whole_rate{5e9};
constexpr BytesPerSecond whole_memory_rate{2e9};
constexpr BytesPerSecond common_memory_rate{3e9};  // of all parts of a host
constexpr BytesPerSecond link_rate{250e6};
constexpr Seconds link_latency{0.25e-3};
constexpr int whole_share = 64;
constexpr Bytes whole_memory{std::int64_t{16} << 30};

Machine host_machine(const std::vector<int>& shares, const std::optional<LinkThrottle>& link,
                     bool by_wall_clock) {
  Machine machine;
  machine.backend = "host";
  machine.name = "synthetic host";
  machine.versions = {{"parsim-hw", "1"}};
  machine.clocks = by_wall_clock ? "wall clock: operations sleep for the durations of a formula"
                                 : "virtual time: operations take the durations of a formula";
  Cluster& cluster = machine.cluster;
  cluster.name = machine.name;
  cluster.nodes = {{"node"}};
  for (std::size_t d = 0; d < shares.size(); ++d) {
    const double part = static_cast<double>(shares[d]) / whole_share;
    DeviceModel model;
    model.name = fmt::format("host-{}", shares[d]);
    model.multiprocessors = shares[d];
    model.peak.fill({whole_rate.value * part});
    model.memory_rate = {whole_memory_rate.value * part};
    model.memory = {static_cast<std::int64_t>(static_cast<double>(whole_memory.value) * part)};
    model.provenance = {{"*", Label::guessed, "the synthetic host's own formula"}};
    std::size_t index = 0;
    while (index < cluster.models.size() && cluster.models[index].name != model.name) ++index;
    if (index == cluster.models.size()) cluster.models.push_back(model);
    cluster.devices.push_back(
        {fmt::format("host{}", d), static_cast<std::int32_t>(index), NodeId{0}, model.memory});
  }
  if (link) {
    throttle_links(machine, *link);
  } else {
    connect_as_star(machine, std::vector<std::pair<BytesPerSecond, Seconds>>(
                                 shares.size(), {link_rate, link_latency}));
  }
  return machine;
}

struct Load {
  Flops flops;
  Bytes touched;
};
Load load_of(const ExecDag& dag, const Compute& op) {
  const LayerId layer = dag.work(op.work).layer;
  const Layer& what = dag.network[layer];
  const std::vector<Shape> shapes = input_shapes(dag.network, layer);
  const Part part = dag.part(op.work);
  if (part.out.empty()) return {};
  // A backward pass has a matmul for each operand.
  const std::int64_t passes = op.pass == Pass::backward ? 2 : 1;
  std::int64_t elements = part.out.volume();
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    elements += input_region(what.kind, shapes, what.out, i, part).volume();
  }
  for (std::size_t i = 0; i < what.parameters.size(); ++i) {
    elements += parameter_region(what.kind, shapes, what.out, i, part).volume();
  }
  // Its softmax reads and writes as many numbers as it is given; backward twice that.
  if (what.kind.as<Loss>() != nullptr) elements = 2 * (elements - part.out.volume());
  return {static_cast<double>(passes) * forward_flops(what.kind, shapes, what.out, part),
          Bytes{passes * elements * element_bytes(dag.precision)}};
}

Seconds kernel_duration(const Load& load, Precision precision, const DeviceModel& model) {
  if (load.touched.value == 0) return {};
  return overhead +
         std::max(load.flops / model.peak_at(precision), load.touched / model.memory_rate);
}

Bytes touched_in(const ExecDag& dag, OpId id) {
  switch (dag.kind(id)) {
    case OpKind::compute:
      return load_of(dag, std::get<Compute>(dag.op(id))).touched;
    case OpKind::update:
    case OpKind::local:
      return touched_bytes(dag, id);
    case OpKind::delay:
      return {};
    case OpKind::transfer:
    case OpKind::collective:
      break;
  }
  return message_traffic(dag, id);
}

/// Those of the processes, or of the one.
std::vector<int> shares_of(const std::vector<int>& shares, const Processes* others) {
  if (others == nullptr) return shares.empty() ? std::vector{whole_share, whole_share} : shares;
  const auto size = static_cast<std::size_t>(others->size());
  if (shares.empty()) return std::vector<int>(size, whole_share);
  if (shares.size() == size) return shares;
  throw InputError("--partition", fmt::format("{} devices", shares.size()),
                   fmt::format("accepted: {}, one for each process", size));
}

}  // namespace

Seconds modelled_duration(const ExecDag& dag, OpId id, const Machine& machine) {
  const OpRecord& record = dag.record(id);
  const auto model = [&]() -> const DeviceModel& {
    return machine.cluster.model(DeviceId{record.device});
  };
  switch (dag.kind(id)) {
    case OpKind::compute:
      return kernel_duration(load_of(dag, std::get<Compute>(dag.op(id))), dag.precision, model());
    case OpKind::update:
    case OpKind::local:
      return overhead + touched_bytes(dag, id) / model().memory_rate;
    case OpKind::delay:
      return std::get<Delay>(dag.op(id)).time;
    case OpKind::transfer:
    case OpKind::collective:
      break;
  }
  const std::vector<Link>& links = machine.cluster.links;  // by device, to the one switch
  if (dag.kind(id) == OpKind::transfer) {
    const Link& from = links[static_cast<std::size_t>(record.device)];
    const Link& to = links[static_cast<std::size_t>(record.to)];
    return from.latency + to.latency + dag.payload(id) / std::min(from.rate, to.rate);
  }
  const std::vector<DeviceId>& group = dag.group(GroupId{record.device});
  const auto n = static_cast<double>(group.size());
  if (n < 2) return {};
  BytesPerSecond rate = links[group[0].index()].rate;
  Seconds latency{};
  for (const DeviceId member : group) {
    rate = std::min(rate, links[member.index()].rate);
    latency = std::max(latency, links[member.index()].latency);
  }
  const bool twice = static_cast<CollectiveKind>(record.sub) == CollectiveKind::all_reduce;
  const double steps = (twice ? 2 : 1) * (n - 1);
  return steps * 2 * latency + steps / n * (dag.payload(id) / rate);
}

HostExecutor::HostExecutor(const std::vector<int>& shares, const std::optional<LinkThrottle>& link,
                           Processes* others)
    : hardware_{host_machine(shares_of(shares, others), link, others != nullptr),
                {},
                {},
                Bytes{std::int64_t{256} << 20}},
      others_(others),
      clock_(others == nullptr ? ClockKind::virtual_time : ClockKind::wall) {
  if (others != nullptr || shares.empty()) return;
  std::vector<DeviceId>& all = hardware_.common_memory.emplace_back();
  std::vector<BytesPerSecond> rates;
  for (std::size_t d = 0; d < shares.size(); ++d) {
    all.emplace_back(d);
    rates.push_back(hardware_.machine.cluster.model(DeviceId{d}).memory_rate);
  }
  hardware_.walk = Bytes{std::int64_t{64} << 20};
  contention_.emplace(rates, common_memory_rate, clock_);
}

void HostExecutor::sleep(const ExecDag& dag, OpId op, Seconds alone) {
  if (!contention_) return clock_.sleep_for(alone);
  const OpKind kind = dag.kind(op);
  const bool message = kind == OpKind::transfer || kind == OpKind::collective;
  contention_->sleep(message ? movers(dag, op) : std::vector{DeviceId{dag.record(op).device}},
                     alone, touched_in(dag, op));
}

Timeline HostExecutor::run(const ExecDag& dag) {
  check_fits(dag, hardware_.machine);
  std::vector<Seconds> durations;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    durations.push_back(modelled_duration(dag, OpId{i}, hardware_.machine));
  }
  const auto sleep_through = [&](OpId op) { sleep(dag, op, durations[op.index()]); };
  if (others_ == nullptr) return run_on_threads(dag, dispatch(dag), sleep_through, clock_);
  const Dispatch own = dispatch(dag, DeviceId{others_->rank()});
  const auto work = [&](OpId op) {
    exchange(*others_, dag, op);
    sleep_through(op);
  };
  others_->barrier();
  const std::vector<Timeline> whole =
      whole_steps(*others_, own, {run_on_threads(dag, own, work, clock_)});
  return whole.empty() ? Timeline{} : whole.front();
}

Spread HostExecutor::time(const ExecDag& dag, OpId op, int samples) {
  const Seconds duration = modelled_duration(dag, op, hardware_.machine);
  return spread_of(repeat_together({[&] { sleep(dag, op, duration); }}, samples, clock_).front());
}

std::vector<Spread> HostExecutor::alone(const ExecDag& dag, const std::vector<OpId>& ops,
                                        int samples) {
  std::vector<Spread> times;
  for (const OpId op : ops) times.push_back(time(dag, op, samples));
  return times;
}

std::vector<std::vector<Beside>> HostExecutor::together(
    const ExecDag& dag, const std::vector<std::vector<Neighbour>>& groups, int samples) {
  std::vector<std::vector<Beside>> all;
  for (const std::vector<Neighbour>& group : groups) {
    std::vector<std::function<void()>> works;
    for (const Neighbour& one : group) {
      works.emplace_back([&, duration = modelled_duration(dag, one.op, hardware_.machine)] {
        sleep(dag, one.op, duration);
      });
    }
    const std::vector<std::vector<Seconds>> during = repeat_together(works, samples, clock_);
    all.emplace_back();
    for (std::size_t i = 0; i < group.size(); ++i) {
      all.back().push_back({time(dag, group[i].op, samples), spread_of(during[i])});
    }
  }
  return all;
}

Measurement HostExecutor::step(const ExecDag& dag, int steps) {
  std::vector<Timeline> runs;
  std::vector<Seconds> times;
  for (int s = 0; s < steps; ++s) {
    Timeline whole = run(dag);
    if (whole.spans.size() < dag.size()) continue;  // rank 0 has it
    times.push_back(makespan(whole));
    runs.push_back(std::move(whole));
  }
  return measurement_of(times, runs);
}

std::string HostExecutor::check(const ExecDag& dag) {
  if (others_ == nullptr) {
    throw HardwareError(fmt::format("the synthetic host computes no results in one process; {}",
                                    stores(dag).devices > 1 ? "start one process per device"
                                                            : "choose a plan on several devices"));
  }
  check_fits(dag, hardware_.machine);
  HostNumbers expected(dag);
  static_cast<void>(expected.run(dispatch(dag)));
  HostNumbers own(dag, *others_);
  static_cast<void>(own.run(dispatch(dag, DeviceId{others_->rank()})));
  constexpr double rounding = 1e-9;  // float64 sums in another order
  const std::string worst = worst_difference(
      expected, own.stores(), Precision::fp32, rounding,
      [&](const StoreKey& key, const Region& box) { return own.values(key, box); });
  for (const std::string& one : others_->all_gather(worst)) {
    if (!one.empty()) return one;
  }
  return {};
}

}  // namespace parsim::hw
