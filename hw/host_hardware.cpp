// The synthetic host: a machine whose speed is known, to test calibration and measurement with.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <thread>

#include "core/errors.hpp"
#include "hw/hardware.hpp"
#include "hw/host.hpp"
#include "hw/memory_contention.hpp"
#include "hw/processes.hpp"

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

Machine host_machine(const std::vector<int>& shares, const std::optional<LinkThrottle>& link) {
  Machine machine;
  machine.backend = "host";
  machine.name = "synthetic host";
  machine.versions = {{"parsim-hw", "1"}};
  machine.clocks = "virtual time: operations take the durations of a formula";
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

std::vector<Seconds> durations_of(const ExecDag& dag, const Machine& machine) {
  std::vector<Seconds> durations;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    durations.push_back(modelled_duration(dag, OpId{i}, machine));
  }
  return durations;
}

/// All devices in one process. Its threads sleep in virtual time: measurements depend on the
/// formula, calibration and dispatch only, not on how busy this machine is.
class SyntheticHost {
 public:
  SyntheticHost(const Machine& machine, bool shares_memory) : machine_(machine) {
    if (!shares_memory) return;
    std::vector<BytesPerSecond> rates;
    for (const Device& device : machine.cluster.devices) {
      rates.push_back(machine.cluster.models[static_cast<std::size_t>(device.model)].memory_rate);
    }
    contention_.emplace(rates, common_memory_rate, clock_);
  }

  Spread alone(const ExecDag& dag, OpId op, int samples) {
    return spread_of(repeat_together({[&] { sleep(dag, op); }}, samples, clock_).front());
  }

  std::vector<Beside> together(const ExecDag& dag, const std::vector<Neighbour>& group,
                               int samples) {
    std::vector<std::function<void()>> works;
    for (const Neighbour& one : group)
      works.emplace_back([this, &dag, op = one.op] { sleep(dag, op); });
    const std::vector<std::vector<Seconds>> times = repeat_together(works, samples, clock_);
    std::vector<Beside> all;
    for (std::size_t i = 0; i < group.size(); ++i) {
      all.push_back({alone(dag, group[i].op, samples), spread_of(times[i])});
    }
    return all;
  }

  Measurement step(const ExecDag& dag, int steps) {
    const Dispatch order = dispatch(dag);
    const std::vector<Seconds> durations = durations_of(dag, machine_);
    const auto work = [&](OpId op) { sleep(dag, op, durations[op.index()]); };
    std::vector<Timeline> runs;
    std::vector<Seconds> times;
    for (int s = 0; s < steps; ++s) {
      runs.push_back(run_on_threads(dag, order, work, clock_));
      times.push_back(makespan(runs.back()));
    }
    return measurement_of(times, runs);
  }

 private:
  void sleep(const ExecDag& dag, OpId op) { sleep(dag, op, modelled_duration(dag, op, machine_)); }
  void sleep(const ExecDag& dag, OpId op, Seconds alone) {
    if (!contention_) return clock_.sleep_for(alone);
    const OpKind kind = dag.kind(op);
    const bool message = kind == OpKind::transfer || kind == OpKind::collective;
    contention_->sleep(message ? movers(dag, op) : std::vector{DeviceId{dag.record(op).device}},
                       alone, touched_in(dag, op));
  }

  Machine machine_;
  Clock clock_{ClockKind::virtual_time};
  std::optional<MemoryContention> contention_;  ///< of parts of one host
};

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

Hardware host_hardware(const std::vector<int>& shares, const std::optional<LinkThrottle>& link) {
  Hardware host;
  host.machine =
      host_machine(shares.empty() ? std::vector<int>{whole_share, whole_share} : shares, link);
  const auto synthetic = std::make_shared<SyntheticHost>(host.machine, !shares.empty());
  if (!shares.empty()) {
    std::vector<DeviceId>& all = host.common_memory.emplace_back();
    for (std::size_t d = 0; d < shares.size(); ++d) all.emplace_back(d);
    host.walk = Bytes{std::int64_t{64} << 20};
  }
  host.largest_message = Bytes{std::int64_t{256} << 20};
  host.alone = [synthetic](const ExecDag& dag, const std::vector<OpId>& ops, int samples) {
    std::vector<Spread> spreads;
    for (const OpId op : ops) spreads.push_back(synthetic->alone(dag, op, samples));
    return spreads;
  };
  host.together = [synthetic](const ExecDag& dag, const std::vector<std::vector<Neighbour>>& groups,
                              int samples) {
    std::vector<std::vector<Beside>> all;
    for (const std::vector<Neighbour>& group : groups) {
      all.push_back(synthetic->together(dag, group, samples));
    }
    return all;
  };
  host.step = [synthetic](const ExecDag& dag, int steps) { return synthetic->step(dag, steps); };
  return host;
}

Hardware host_hardware(const std::vector<int>& shares, const std::optional<LinkThrottle>& link,
                       Rendezvous& rendezvous) {
  const Launch& launch = rendezvous.launch();
  const auto size = static_cast<std::size_t>(launch.size);
  if (!shares.empty() && shares.size() != size) {
    throw InputError("--partition", fmt::format("{} devices", shares.size()),
                     fmt::format("accepted: {}, one for each process of {}", size, launch.by));
  }
  const DeviceId mine{launch.rank};
  Hardware host;
  host.machine = host_machine(shares.empty() ? std::vector<int>(size, whole_share) : shares, link);
  host.machine.clocks = "wall clock: operations sleep for the durations of a formula";
  const Machine machine = host.machine;
  const auto mailbox = std::make_shared<Mailbox>(rendezvous);
  host.step = [=, &rendezvous](const ExecDag& dag, int steps) {
    const Dispatch own = dispatch(dag, mine);
    const std::vector<Seconds> durations = durations_of(dag, machine);
    Exchange exchange(dag, mine, *mailbox);
    std::vector<Timeline> parts;
    std::vector<Seconds> times;
    for (int s = 0; s < steps; ++s) {
      exchange.begin_step();
      meet(rendezvous);
      const auto work = [&](OpId op) {
        exchange.meet(op);
        std::this_thread::sleep_for(durations[op.index()]);
      };
      Clock clock(ClockKind::wall);
      parts.push_back(run_on_threads(dag, own, work, clock));
      times.push_back(makespan(parts.back()));
    }
    times = slowest(rendezvous, times);
    const std::vector<Timeline> whole = whole_steps(rendezvous, own, parts);
    return whole.empty() ? Measurement{} : measurement_of(times, whole);
  };
  host.check = [=, &rendezvous](const ExecDag& dag, double tolerance) {
    HostNumbers expected(dag);
    static_cast<void>(expected.run(dispatch(dag)));
    HostNumbers own(dag, mine, *mailbox);
    static_cast<void>(own.run(dispatch(dag, mine)));
    const std::string worst = worst_difference(
        expected, own.stores(), Precision::fp32, tolerance,  // it computes in float64
        [&](const StoreKey& key, const Region& box) { return own.values(key, box); });
    for (const std::string& one : rendezvous.all_gather(worst)) {
      if (!one.empty()) return one;
    }
    return std::string();
  };
  return host;
}

}  // namespace parsim::hw
