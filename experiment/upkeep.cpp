#include "experiment/upkeep.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

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

/// What a machine draws at most beyond its devices; nothing where theirs is not known.
std::optional<Watts> rest_of_machine(const Cluster& cluster, NodeId node,
                                     std::span<const DeviceId> devices) {
  const std::optional<Watts> all = cluster.nodes[node.index()].upkeep.power;
  if (!all) return Watts{};
  const auto theirs =
      sum_of<Watts>(cluster, devices, [&](DeviceId d) { return cluster[d].upkeep.power; });
  if (!theirs) return std::nullopt;
  return Watts{std::max(0.0, all->value - theirs->value)};
}

std::optional<Joules> energy_of(const Cluster& cluster, NodeId node,
                                std::span<const DeviceId> devices, std::span<const Seconds> busy,
                                Seconds step) {
  const std::optional<Watts> rest = rest_of_machine(cluster, node, devices);
  const auto theirs = sum_of<Joules>(cluster, devices, [&](DeviceId d) {
    const Upkeep& upkeep = cluster[d].upkeep;
    if (!upkeep.power) return std::optional<Joules>();
    const Seconds kernels = busy[d.index()];
    return std::optional(*upkeep.power * kernels + *upkeep.idle() * (step - kernels));
  });
  if (!rest || !theirs) return std::nullopt;
  return *theirs + *rest * step;
}

/// The first GPU without a number, or an invalid id.
DeviceId lacking(const Cluster& cluster, auto number) {
  for (std::size_t d = 0; d < cluster.devices.size(); ++d) {
    if (needs(cluster, DeviceId{d}) && !number(DeviceId{d})) return DeviceId{d};
  }
  return {};
}

}  // namespace

StepUpkeep step_upkeep(const Cluster& cluster, std::span<const Seconds> busy, Seconds step) {
  const std::vector<std::vector<DeviceId>> machines = by_machine(cluster);
  std::optional<Money> cost{Money{}};
  std::optional<Joules> energy{Joules{}};
  for (std::size_t n = 0; n < machines.size(); ++n) {
    std::vector<DeviceId> computing;
    for (const DeviceId d : machines[n]) {
      if (busy[d.index()] > Seconds{}) computing.push_back(d);
    }
    if (computing.empty()) continue;
    std::optional<MoneyPerHour> price = cluster.nodes[n].upkeep.price;
    if (!price) {
      price = sum_of<MoneyPerHour>(cluster, computing,
                                   [&](DeviceId d) { return cluster[d].upkeep.price; });
    }
    cost = cost && price ? std::optional(*cost + *price * step) : std::nullopt;
    const std::optional<Joules> drawn = energy_of(cluster, NodeId{n}, machines[n], busy, step);
    energy = energy && drawn ? std::optional(*energy + *drawn) : std::nullopt;
  }
  return {cost, energy};
}

std::optional<Watts> machine_power(const Cluster& cluster, NodeId node) {
  const std::optional<Watts> own = cluster.nodes[node.index()].upkeep.power;
  return own ? own : sum_of<Watts>(cluster, by_machine(cluster)[node.index()], [&](DeviceId d) {
    return cluster[d].upkeep.power;
  });
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
  if (dag.units != nullptr) dag.units->copy_to_all(busy);
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
