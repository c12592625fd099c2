#include "experiment/checks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>
#include <variant>

#include "core/dag_algorithms.hpp"
#include "core/dag_traffic.hpp"
#include "core/errors.hpp"
#include "core/kernel_times.hpp"

namespace parsim::experiment {

namespace {

constexpr double relative_tolerance = 1e-9;
// Flows are doubles, and a byte count shared among rings is rounded once per ring and hop.
constexpr double byte_tolerance = 1e-6;
constexpr double most_rounded = 0.5;

/// Of a collective: 16 among the links of GPUs, or a rail for each GPU of a machine.
double most_rings(const Cluster& cluster) {
  std::vector<double> gpus(cluster.nodes.size());
  double most = 16;
  for (const Device& device : cluster.devices) {
    if (device.node.valid()) most = std::max(most, ++gpus[device.node.index()]);
  }
  return most;
}

/// Bytes every member of an all_gather, reduce_scatter or all_to_all must receive and send.
struct Traffic {
  std::vector<double> in, out;
};

Traffic traffic(const ExecDag& dag, OpId id, const Collective& collective) {
  const std::size_t members = dag.group(collective.group).size();
  const Shares& shares = dag.shares(id);
  const auto element = static_cast<double>(dag.element_bytes(collective.slice.role));
  Traffic bytes{std::vector<double>(members), std::vector<double>(members)};
  const auto share = [&](std::size_t i) -> const Region& { return dag.region(shares.regions[i]); };
  if (collective.kind != CollectiveKind::all_to_all) {
    // A member gathers the others' shares, or contributes to them.
    std::int64_t all = 0;
    for (std::size_t i = 0; i < members; ++i) all += share(i).volume();
    std::vector<double>& others =
        collective.kind == CollectiveKind::all_gather ? bytes.in : bytes.out;
    for (std::size_t i = 0; i < members; ++i)
      others[i] = element * static_cast<double>(all - share(i).volume());
    return bytes;
  }
  for (std::size_t i = 0; i < members; ++i) {
    for (std::size_t j = 0; j < members; ++j) {
      if (i == j) continue;
      const Region piece = intersect(share(j), dag.region(shares.needs[i]));
      bytes.in[i] += element * static_cast<double>(piece.volume());
      bytes.out[j] += element * static_cast<double>(piece.volume());
    }
  }
  return bytes;
}

bool equal_shares(const ExecDag& dag, OpId id) {
  const Shares& shares = dag.shares(id);
  if (!shares.needs.empty()) return false;
  return std::all_of(shares.regions.begin(), shares.regions.end(), [&](RegionId region) {
    return dag.region(region).volume() == dag.region(shares.regions.front()).volume();
  });
}

}  // namespace

std::vector<BytesPerSecond> device_rates(const Cluster& cluster) {
  std::vector<BytesPerSecond> rates(cluster.devices.size());
  for (const Link& link : cluster.links) {
    for (const Port& port : {link.a, link.b}) {
      if (port.kind == Port::Kind::device) rates[static_cast<std::size_t>(port.index)] += link.rate;
    }
  }
  return rates;
}

Seconds least_collective(const ExecDag& dag, OpId id, const std::vector<BytesPerSecond>& rates) {
  const auto collective = std::get<Collective>(dag.op(id));
  const std::vector<DeviceId>& group = dag.group(collective.group);
  const Traffic bytes = traffic(dag, id, collective);
  Seconds least{};
  for (std::size_t i = 0; i < group.size(); ++i) {
    const double rate = rates[group[i].index()].value;
    least = std::max(least, Seconds{std::max(bytes.in[i], bytes.out[i]) / rate});
  }
  return least;
}

Durations durations(const ExecDag& dag, const Cluster& cluster, const CostModel& cost) {
  const std::vector<BytesPerSecond> rates = device_rates(cluster);
  DeviceTimes times(dag, cost);
  // Layers of one shape have collectives of one size.
  std::map<std::tuple<CollectiveKind, GroupId, Bytes>, Seconds> collectives;
  Durations result;
  result.times.reserve(dag.size());
  result.origins.reserve(dag.size());
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpId id{i};
    const OpRecord& record = dag.record(id);
    Cost one = times.of(id);
    if (const auto measured = cost.communication(dag, id)) {
      one.time = *measured;
    } else if (dag.kind(id) == OpKind::transfer) {
      one.time = cost.transfer(DeviceId{record.device}, DeviceId{record.to}, dag.payload(id));
    } else if (dag.kind(id) == OpKind::collective) {
      const auto collective = std::get<Collective>(dag.op(id));
      const std::vector<DeviceId>& group = dag.group(collective.group);
      if (group.size() > 1) {
        const Bytes payload = dag.payload(id);
        const auto [known, fresh] =
            collectives.try_emplace({collective.kind, collective.group, payload});
        if (fresh) known->second = cost.collective(collective.kind, group, payload);
        one.time = known->second;
        // That is of equal shares. Others may be faster, but not than what devices must receive.
        if (!equal_shares(dag, id)) {
          one.time = std::min(one.time, least_collective(dag, id, rates));
        }
      }
    }
    result.times.push_back(one.time);
    result.origins.push_back(one.origin);
  }
  return result;
}

Bounds bounds_of(const ExecDag& dag, const Cluster& cluster, const std::vector<Seconds>& times,
                 const Timeline& timeline, const sim::Slowdowns& slowdowns) {
  Bounds bounds;
  const CriticalPath path = critical_path(dag, times);
  bounds.critical_path = path.length;
  for (const OpId id : path.ops) {
    const bool collective = dag.kind(id) == OpKind::collective;
    bounds.chain += collective ? 2 * dag.group(GroupId{dag.record(id).device}).size() : 1;
  }

  std::vector<Seconds> work(cluster.devices.size());
  bounds.asked = bytes_moved(dag);
  const double rings = most_rings(cluster);
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpId id{i};
    const OpRecord& record = dag.record(id);
    if (dag.kind(id) == OpKind::transfer) {
      // A co-located server: the bytes are counted as moved but cross no link.
      if (record.device == record.to) bounds.kept += dag.count(id) * bytes_received(dag, id);
    } else if (dag.kind(id) == OpKind::collective) {
      const auto hops = static_cast<double>(dag.group(GroupId{record.device}).size());
      bounds.rounded += static_cast<double>(dag.count(id)) * rings * most_rounded * hops;
    } else {
      work[static_cast<std::size_t>(record.device)] += times[i];
    }
  }
  bounds.asked = bounds.asked - bounds.kept;
  for (const Seconds each : work) bounds.busiest_device = std::max(bounds.busiest_device, each);

  if (timeline.hop_bytes.empty()) return bounds;
  bounds.delivered = timeline.bytes_reduced_in_network;
  for (std::size_t i = 0; i < cluster.links.size(); ++i) {
    const Link& link = cluster.links[i];
    for (const bool backwards : {false, true}) {
      const double carried = timeline.hop_bytes[Hop{LinkId{i}, backwards}.index()];
      const Seconds at_least =
          slowdowns.of(LinkId{i}).end(Seconds{0}, Seconds{carried / link.rate.value});
      bounds.busiest_link = std::max(bounds.busiest_link, at_least);
      const Port& end = backwards ? link.a : link.b;
      if (end.kind == Port::Kind::device) bounds.delivered += carried;
    }
  }
  return bounds;
}

std::string check_bounds(const Bounds& bounds, Seconds makespan, bool contention) {
  const Seconds tolerance =
      Seconds{1e-9} * static_cast<double>(bounds.chain) + makespan * relative_tolerance;
  const auto at_least = [&](Seconds bound, std::string_view what) {
    ensure(makespan + tolerance >= bound,
           fmt::format("the simulated step takes {} s, less than {}, {} s", makespan.count(), what,
                       bound.count()));
  };
  at_least(bounds.critical_path, "the critical path");
  at_least(bounds.busiest_device, "the work of the busiest device");
  if (contention) {
    at_least(bounds.busiest_link, "the bytes of the busiest link over its rate");
  }
  if (bounds.delivered < 0) {
    return fmt::format("self-checks passed: step ≥ critical path {}, busiest device {}",
                       to_text(bounds.critical_path), to_text(bounds.busiest_device));
  }
  const auto asked = static_cast<double>(bounds.asked.value);
  ensure(
      std::abs(bounds.delivered - asked) <= byte_tolerance * std::max(asked, 1.0) + bounds.rounded,
      fmt::format("links delivered {} bytes, the plan asked for {}", bounds.delivered, asked));
  std::string bytes = fmt::format("{} delivered", to_text(bounds.asked));
  if (bounds.kept.value > 0) {
    bytes += fmt::format(", {} copied within servers", to_text(bounds.kept));
  }
  if (!contention) {
    return fmt::format(
        "self-checks passed: step ≥ critical path {}, busiest device {}; {} (the busiest link, {}, "
        "is no bound without contention)",
        to_text(bounds.critical_path), to_text(bounds.busiest_device), bytes,
        to_text(bounds.busiest_link));
  }
  return fmt::format(
      "self-checks passed: step ≥ critical path {}, busiest device {}, busiest link {}; {}",
      to_text(bounds.critical_path), to_text(bounds.busiest_device), to_text(bounds.busiest_link),
      bytes);
}

}  // namespace parsim::experiment
