// The paced host: a machine whose speed is known, to test measuring and comparing with.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "core/errors.hpp"
#include "hw/hardware.hpp"
#include "hw/host.hpp"
#include "hw/processes.hpp"

namespace parsim::hw {

namespace {

// Milliseconds, so that a loaded machine's late awakenings are small beside them.
constexpr Seconds overhead{1e-3};
constexpr FlopsPerSecond whole_rate{5e9};
constexpr BytesPerSecond whole_memory_rate{2e9};
constexpr BytesPerSecond link_rate{250e6};
constexpr Seconds link_latency{0.25e-3};
constexpr int whole_share = 64;
constexpr Seconds patience{10e-3};  // of calibration, with a message
constexpr Bytes whole_memory{std::int64_t{16} << 30};

Machine host_machine(const std::vector<int>& shares, const std::optional<PacedLink>& link) {
  Machine machine;
  machine.backend = "host";
  machine.name = "paced host";
  machine.versions = {{"parsim-hw", "1"}};
  machine.clocks = "operations sleep for the times of a formula";
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
    model.provenance = {{"*", Label::guessed, "the paced host's own formula"}};
    std::size_t index = 0;
    while (index < cluster.models.size() && cluster.models[index].name != model.name) ++index;
    if (index == cluster.models.size()) cluster.models.push_back(model);
    cluster.devices.push_back(
        {fmt::format("host{}", d), static_cast<std::int32_t>(index), NodeId{0}, model.memory});
  }
  if (link) {
    pace_links(machine, *link);
  } else {
    connect_as_star(machine, std::vector<std::pair<BytesPerSecond, Seconds>>(
                                 shares.size(), {link_rate, link_latency}));
  }
  return machine;
}

Seconds kernel_pace(const ExecDag& dag, const Compute& op, const DeviceModel& model) {
  const LayerId layer = dag.work(op.work).layer;
  const Layer& what = dag.network[layer];
  const std::vector<Shape> shapes = input_shapes(dag.network, layer);
  const Part part = dag.part(op.work);
  if (part.out.empty()) return {};
  // A backward pass is a product for each operand.
  const double passes = op.pass == Pass::backward ? 2.0 : 1.0;
  const Flops flops = forward_flops(what.kind, shapes, what.out, part);
  std::int64_t elements = part.out.volume();
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    elements += input_region(what.kind, shapes, what.out, i, part).volume();
  }
  const Bytes touched{elements * element_bytes(dag.precision)};
  return overhead +
         passes * std::max(flops / model.peak_at(dag.precision), touched / model.memory_rate);
}

std::vector<Seconds> paces(const ExecDag& dag, const Machine& machine) {
  std::vector<Seconds> durations;
  for (std::size_t i = 0; i < dag.size(); ++i) durations.push_back(pace(dag, OpId{i}, machine));
  return durations;
}

std::vector<Seconds> naps(Seconds time, int samples) {
  std::vector<Seconds> times;
  for (int s = 0; s < samples; ++s) {
    const auto start = std::chrono::steady_clock::now();
    std::this_thread::sleep_for(time);
    times.emplace_back(std::chrono::steady_clock::now() - start);
  }
  return times;
}

/// Nobody launches a thread's operations: what its lane needs to get from one to the next.
std::vector<Seconds> empty_operations(int samples) {
  constexpr std::size_t count = 1000;
  ExecDag dag;
  for (std::size_t i = 0; i < count; ++i) dag.add(Delay{DeviceId{0}, {}}, {});
  const Dispatch order = dispatch(dag);
  std::vector<Seconds> times;
  for (int s = 0; s < samples; ++s) {
    times.push_back(makespan(run_on_threads(dag, order, [](OpId) {})) / static_cast<double>(count));
  }
  return times;
}

}  // namespace

Seconds pace(const ExecDag& dag, OpId id, const Machine& machine) {
  const OpRecord& record = dag.record(id);
  const auto model = [&]() -> const DeviceModel& {
    return machine.cluster.model(DeviceId{record.device});
  };
  switch (dag.kind(id)) {
    case OpKind::compute:
      return kernel_pace(dag, std::get<Compute>(dag.op(id)), model());
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

Hardware host_hardware(const std::vector<int>& shares, const std::optional<PacedLink>& link) {
  Hardware host;
  host.machine =
      host_machine(shares.empty() ? std::vector<int>{whole_share, whole_share} : shares, link);
  const Machine machine = host.machine;
  host.alone = [machine](const ExecDag& dag, const std::vector<OpId>& ops, int samples) {
    std::vector<Spread> spreads;
    for (const OpId op : ops) spreads.push_back(spread_of(naps(pace(dag, op, machine), samples)));
    return spreads;
  };
  host.together = [machine](const ExecDag& dag, const std::vector<Neighbours>& pairs, int samples) {
    std::vector<Together> all;
    for (const Neighbours& pair : pairs) {
      const Seconds kernel = pace(dag, pair.kernel, machine);
      const Seconds message = pace(dag, pair.message, machine);
      const TimesBeside both =
          repeat_beside([&] { std::this_thread::sleep_for(kernel); },
                        [&] { std::this_thread::sleep_for(message); }, samples);
      all.push_back({{spread_of(naps(kernel, samples)), spread_of(both.a)},
                     {spread_of(naps(message, samples)), spread_of(both.b)}});
    }
    return all;
  };
  host.launch = [](int samples) { return spread_of(empty_operations(samples)); };
  const BytesPerSecond rate = host.machine.cluster.links[0].rate;
  host.largest_message = {static_cast<std::int64_t>(rate.value * patience.count())};
  host.step = [machine](const ExecDag& dag, int steps) {
    const Dispatch order = dispatch(dag);
    std::vector<Timeline> runs;
    std::vector<Seconds> times;
    for (int s = 0; s < steps; ++s) {
      runs.push_back(run_paced(dag, order, paces(dag, machine)));
      times.push_back(makespan(runs.back()));
    }
    return measurement_of(times, runs);
  };
  return host;
}

Hardware host_hardware(const std::vector<int>& shares, const std::optional<PacedLink>& link,
                       Meeting& meeting) {
  const Launch& launch = meeting.launch();
  const auto size = static_cast<std::size_t>(launch.size);
  if (!shares.empty() && shares.size() != size) {
    throw InputError("--partition", fmt::format("{} devices", shares.size()),
                     fmt::format("accepted: {}, one for each process of {}", size, launch.by));
  }
  const DeviceId mine{launch.rank};
  Hardware host;
  host.machine = host_machine(shares.empty() ? std::vector<int>(size, whole_share) : shares, link);
  const Machine machine = host.machine;
  const auto post = std::make_shared<Post>(meeting);
  host.step = [=, &meeting](const ExecDag& dag, int steps) {
    const Dispatch own = dispatch(dag, mine);
    const std::vector<Seconds> durations = paces(dag, machine);
    Exchange exchange(dag, mine, *post);
    std::vector<Timeline> parts;
    std::vector<Seconds> times;
    for (int s = 0; s < steps; ++s) {
      exchange.begin_step();
      meet(meeting);
      parts.push_back(run_on_threads(dag, own, [&](OpId op) {
        exchange.meet(op);
        std::this_thread::sleep_for(durations[op.index()]);
      }));
      times.push_back(makespan(parts.back()));
    }
    times = slowest(meeting, times);
    const std::vector<Timeline> whole = whole_steps(meeting, own, parts);
    return whole.empty() ? Measurement{} : measurement_of(times, whole);
  };
  host.check = [=, &meeting](const ExecDag& dag, double tolerance) {
    HostNumbers expected(dag);
    static_cast<void>(expected.run(dispatch(dag)));
    HostNumbers own(dag, mine, *post);
    static_cast<void>(own.run(dispatch(dag, mine)));
    const std::string worst = worst_difference(
        expected, own.stores(), Precision::fp32, tolerance,  // it computes in float64
        [&](const StoreKey& key, const Region& box) { return own.values(key, box); });
    for (const std::string& one : meeting.to_all(worst)) {
      if (!one.empty()) return one;
    }
    return std::string();
  };
  return host;
}

}  // namespace parsim::hw
