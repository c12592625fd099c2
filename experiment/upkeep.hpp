// What a step costs and draws, from prices and powers of devices and machines (core/cluster.hpp).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/cluster.hpp"
#include "core/cost_model.hpp"
#include "core/exec_dag.hpp"
#include "strategies/strategies.hpp"

namespace parsim::experiment {

/// Nothing where a price or a power is not known.
struct StepUpkeep {
  std::optional<Money> cost{};
  std::optional<Joules> energy{};  ///< `links` included
  std::optional<Joules> links{};   ///< nothing, too, where no link has a power
};

/// Of the machines of which a device computes; others could be switched off or not rented.
///
///     cost    step x prices: a machine's own, or else those of its devices that compute
///     energy  sum over devices of busy x power + (step - busy) x idle power, and step x what a
///             machine draws at most beyond its devices and the links between what is in it (its
///             power less theirs); of a link with a power:
///             step x idle power + (power - idle power) x bytes / 2 rate
///
/// A link at a machine that does not compute draws nothing, unless it carries bytes. Its power is
/// that of both directions, as SimGrid's link energy plugin has it for each (docs/money.md).
/// CPUs cost and draw nothing of their own unless the description says so. Exact for power that
/// depends on nothing but whether kernels run; real power is lower in kernels bound by memory.
///
/// busy       by DeviceId: how long kernels run; at most `step`
/// hop_bytes  by Hop::index(), or none: not known, and then the energy is not where it depends on
///            them (bytes_matter())
[[nodiscard]] StepUpkeep step_upkeep(const Cluster& cluster, std::span<const Seconds> busy,
                                     Seconds step, std::span<const double> hop_bytes = {});

/// Whether a link draws more when it carries bytes.
[[nodiscard]] bool bytes_matter(const Cluster& cluster);

/// The most that machine `node` draws: its own power, or else that of its devices and of the links
/// between what is in it; nothing where a GPU's is not known.
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
/// Where GPUs differ: among which plans cost or energy is the least.
[[nodiscard]] std::optional<std::string> objective_note(strategies::Objective objective,
                                                        const Cluster& cluster);

}  // namespace parsim::experiment
