#include "experiment/upkeep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <set>

#include "core/errors.hpp"
#include "experiment/checks.hpp"

namespace parsim::experiment {

namespace {

/// Devices by NodeId.
std::vector<std::vector<DeviceId>> by_machine(const Cluster& cluster) {
  std::vector<std::vector<DeviceId>> machines(cluster.nodes.size());
  for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
    machines[cluster.devices[d].node.index()].push_back(DeviceId{d});
  }
  return machines;
}

bool needs(const Cluster& cluster, DeviceId device) {
  return cluster.model(device).kind == DeviceKind::gpu;
}

/// The sum of a number of devices, or nothing where one that needs it has none.
template <class Number>
std::optional<Number> sum_of(const Cluster& cluster, std::span<const DeviceId> devices,
                             auto number) {
  Number sum{};
  for (const DeviceId device : devices) {
    const std::optional<Number> one = number(device);
    if (!one && needs(cluster, device)) return std::nullopt;
    sum += one.value_or(Number{});
  }
  return sum;
}

/// By NodeId: the power of the links that do not leave a machine.
std::vector<Watts> inner_links(const Cluster& cluster) {
  std::vector<Watts> inner(cluster.nodes.size());
  for (const Link& link : cluster.links) {
    if (!link.power.power) continue;
    const NodeId machine = machine_of(cluster, link.a);
    if (!machine.valid() || machine_of(cluster, link.b) != machine) continue;
    inner[machine.index()] += *link.power.power;
  }
  return inner;
}

/// What a machine draws at most beyond its devices and inner links; nothing where it is not known.
std::optional<Watts> rest_of_machine(const Cluster& cluster, NodeId node,
                                     std::span<const DeviceId> devices, Watts links) {
  const std::optional<Watts> all = cluster.nodes[node.index()].upkeep.power;
  if (!all) return Watts{};
  const auto theirs =
      sum_of<Watts>(cluster, devices, [&](DeviceId d) { return cluster[d].upkeep.power; });
  if (!theirs) return std::nullopt;
  return Watts{std::max(0.0, all->value - (*theirs + links).value)};
}

std::optional<Joules> energy_of(const Cluster& cluster, NodeId node,
                                std::span<const DeviceId> devices, std::span<const Seconds> busy,
                                Seconds step, Watts links) {
  const std::optional<Watts> rest = rest_of_machine(cluster, node, devices, links);
  const auto theirs = sum_of<Joules>(cluster, devices, [&](DeviceId d) {
    const Upkeep& upkeep = cluster[d].upkeep;
    if (!upkeep.power) return std::optional<Joules>();
    const Seconds kernels = busy[d.index()];
    return std::optional(*upkeep.power * kernels + *upkeep.idle() * (step - kernels));
  });
  if (!rest || !theirs) return std::nullopt;
  return *theirs + *rest * step;
}

bool draws_more(const Link& link) {
  return link.power.power && *link.power.power > *link.power.idle();
}

/// Of all links; nothing where none has a power or where their bytes are needed and not known.
std::optional<Joules> energy_of_links(const Cluster& cluster, const std::vector<bool>& computes,
                                      Seconds step, std::span<const double> hop_bytes) {
  if (hop_bytes.empty() && bytes_matter(cluster)) return std::nullopt;
  std::optional<Joules> sum;
  for (std::size_t i = 0; i < cluster.links.size(); ++i) {
    const Link& link = cluster.links[i];
    if (!link.power.power) continue;
    if (!sum) sum = Joules{};
    const double bytes = hop_bytes.empty() ? 0 : hop_bytes[2 * i] + hop_bytes[2 * i + 1];
    if (bytes <= 0 && !is_on(cluster, LinkId{i}, computes)) continue;
    const Seconds carrying{bytes / (2 * link.rate.value)};
    *sum += *link.power.idle() * step + (*link.power.power - *link.power.idle()) * carrying;
  }
  return sum;
}

/// The first GPU without a number, or an invalid id.
DeviceId lacking(const Cluster& cluster, auto number) {
  for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
    if (needs(cluster, DeviceId{d}) && !number(DeviceId{d})) return DeviceId{d};
  }
  return {};
}

}  // namespace

bool bytes_matter(const Cluster& cluster) {
  return std::any_of(cluster.links.begin(), cluster.links.end(), draws_more);
}

StepUpkeep step_upkeep(const Cluster& cluster, std::span<const Seconds> busy, Seconds step,
                       std::span<const double> hop_bytes) {
  const std::vector<std::vector<DeviceId>> machines = by_machine(cluster);
  std::optional<Money> cost{Money{}};
  std::optional<Joules> energy{Joules{}};
  const std::vector<Watts> inner = inner_links(cluster);
  std::vector<bool> computes(machines.size());
  for (std::size_t n = 0; n < machines.size(); ++n) {
    std::vector<DeviceId> computing;
    for (const DeviceId d : machines[n]) {
      if (busy[d.index()] > Seconds{}) computing.push_back(d);
    }
    if (computing.empty()) continue;
    computes[n] = true;
    std::optional<MoneyPerHour> price = cluster.nodes[n].upkeep.price;
    if (!price) {
      price = sum_of<MoneyPerHour>(cluster, computing,
                                   [&](DeviceId d) { return cluster[d].upkeep.price; });
    }
    cost = cost && price ? std::optional(*cost + *price * step) : std::nullopt;
    const std::optional<Joules> drawn =
        energy_of(cluster, NodeId{n}, machines[n], busy, step, inner[n]);
    energy = energy && drawn ? std::optional(*energy + *drawn) : std::nullopt;
  }
  const std::optional<Joules> links = energy_of_links(cluster, computes, step, hop_bytes);
  if (links) {
    energy = energy ? std::optional(*energy + *links) : std::nullopt;
  } else if (bytes_matter(cluster)) {
    energy.reset();
  }
  return {cost, energy, links};
}

std::optional<Watts> machine_power(const Cluster& cluster, NodeId node) {
  const std::optional<Watts> own = cluster.nodes[node.index()].upkeep.power;
  if (own) return own;
  const auto devices = sum_of<Watts>(cluster, by_machine(cluster)[node.index()],
                                     [&](DeviceId d) { return cluster[d].upkeep.power; });
  return devices ? std::optional(*devices + inner_links(cluster)[node.index()]) : std::nullopt;
}

std::optional<MoneyPerHour> machine_price(const Cluster& cluster, NodeId node) {
  const std::optional<MoneyPerHour> own = cluster.nodes[node.index()].upkeep.price;
  return own ? own
             : sum_of<MoneyPerHour>(cluster, by_machine(cluster)[node.index()],
                                    [&](DeviceId d) { return cluster[d].upkeep.price; });
}

std::vector<Seconds> kernel_times(const ExecDag& dag, const Cluster& cluster,
                                  const CostModel& cost) {
  const Durations times = durations(dag, cluster, cost);
  std::vector<Seconds> busy(cluster.devices.size());
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const OpKind kind = dag.kind(OpId{i});
    if (kind == OpKind::transfer || kind == OpKind::collective) continue;
    busy[static_cast<std::size_t>(dag.record(OpId{i}).device)] += times.times[i];
  }
  dag.fold.copy_to_all(busy);
  return busy;
}

double goal_of(strategies::Objective objective, Seconds step, const StepUpkeep& upkeep) {
  constexpr double unknown = std::numeric_limits<double>::infinity();
  switch (objective) {
    case strategies::Objective::time:
      return step.count();
    case strategies::Objective::cost:
      return upkeep.cost ? upkeep.cost->value : unknown;
    case strategies::Objective::energy:
      return upkeep.energy ? upkeep.energy->value : unknown;
  }
  return unknown;
}

std::optional<std::string> objective_note(strategies::Objective objective, const Cluster& cluster) {
  std::set<std::int32_t> models;
  for (const DeviceId gpu : devices_of(cluster, DeviceKind::gpu)) models.insert(cluster[gpu].model);
  if (objective == strategies::Objective::time || models.size() < 2) return std::nullopt;
  return fmt::format(
      "'best' compares plans of the other strategies, and those near the fastest, by {}; another "
      "plan on GPUs of one type may have less of it: ask about a cluster of these alone, or use "
      "parsim buy",
      to_text(objective));
}

void check_objective(strategies::Objective objective, const Cluster& cluster) {
  if (objective == strategies::Objective::time) return;
  const bool cost = objective == strategies::Objective::cost;
  const DeviceId without = lacking(cluster, [&](DeviceId d) {
    if (!cost) return cluster[d].upkeep.power.has_value();
    return cluster.nodes[cluster[d].node.index()].upkeep.price || cluster[d].upkeep.price;
  });
  if (!without.valid()) return;
  throw InputError(
      "--objective",
      fmt::format("'{}', and '{}' of cluster '{}' has no {}", to_text(objective),
                  cluster[without].name, cluster.name, cost ? "price" : "power"),
      cost ? "accepted: price = \"2.5 /h\" or \"30k / 4 years\" of each GPU's type, of GPUs or of "
             "machines in a cluster file"
           : "accepted: power = \"700 W\" of each GPU's type or of GPUs in a cluster file");
}

}  // namespace parsim::experiment
