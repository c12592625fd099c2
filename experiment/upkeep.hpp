// What a step costs and draws, from prices and powers of devices and machines (core/cluster.hpp).
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/cluster.hpp"
#include "core/cost_model.hpp"
#include "core/exec_dag.hpp"
#include "strategies/strategies.hpp"

namespace parsim::experiment {

/// Nothing where a price or a power is not known.
struct StepUpkeep {
  std::optional<Money> cost{};
  std::optional<Joules> energy{};
};

/// Of the machines of which a device computes; others could be switched off or not rented.
///
///     cost    step x prices: a machine's own, or else those of its devices that compute
///     energy  sum over devices of busy x power + (step - busy) x idle power, and step x what a
///             machine draws at most beyond its devices (its power less theirs)
///
/// CPUs cost and draw nothing of their own unless the description says so. Exact for power that
/// depends on nothing but whether kernels run; real power is lower in kernels bound by memory.
///
/// busy   by DeviceId: how long kernels run; at most `step`
[[nodiscard]] StepUpkeep step_upkeep(const Cluster& cluster, std::span<const Seconds> busy,
                                     Seconds step);

/// The most that machine `node` draws: its own power, or else that of its devices; nothing where a
/// GPU's is not known.
[[nodiscard]] std::optional<Watts> machine_power(const Cluster& cluster, NodeId node);
/// The price of machine `node`: its own, or else that of its devices; nothing where a GPU's is not
/// known.
[[nodiscard]] std::optional<MoneyPerHour> machine_price(const Cluster& cluster, NodeId node);

/// By DeviceId: the times of a plan's kernels, one after another.
[[nodiscard]] std::vector<Seconds> kernel_times(const ExecDag& dag, const Cluster& cluster,
                                                const CostModel& cost);

/// What --objective wants least of: seconds, money or joules; infinite where it is not known.
[[nodiscard]] double goal_of(strategies::Objective objective, Seconds step,
                             const StepUpkeep& upkeep);

/// Throws InputError if the objective needs a price or power that the cluster lacks.
void check_objective(strategies::Objective objective, const Cluster& cluster);

}  // namespace parsim::experiment
