// A step that no plan beats, and how far a plan is from it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/ids.hpp"
#include "experiment/experiment.hpp"
#include "experiment/run.hpp"

namespace parsim::experiment {

/// What a part with the share x of some work takes at least: fixed + x · whole seconds.
struct PartTime {
  double fixed = 0, whole = 0;
  PartTime& operator+=(const PartTime& other) {
    fixed += other.fixed;
    whole += other.whole;
    return *this;
  }
  friend auto operator<=>(const PartTime&, const PartTime&) = default;
};

/// All passes over a layer, which may be divided into parts: a device that has one does all passes
/// over it. By type of device.
struct DividedWork {
  std::vector<PartTime> all, forward, backward;  ///< all: also the weight gradients
  friend auto operator<=>(const DividedWork&, const DividedWork&) = default;
};

/// Equal ones together. A chain (longest_chain) has so much of their passes: the step is not
/// shorter than the sum of the mean times of their parts, by share, either.
struct Divided {
  DividedWork work;
  double times = 1;
  double forward = 0, backward = 0;  ///< on the chain, each of them: 0 to 1
};

/// The least time in which devices do all work, each piece of which may be divided among them at
/// will. With the loads on devices and the chain together:
///
///     max  Σ_w min_k min_x Σ_p (θ · λ_k + (1 − θ) · c_wp · x) · (fixed[w][k][p] / x + whole[w][k][p])
///
/// over 0 ≤ θ ≤ 1 and λ ≥ 0 with Σ_k counts[k] · λ_k = 1. Pass p of w is on the chain c_wp times;
/// the share 0 < x ≤ 1 and the type k are those that are best for w. Any θ and λ give a lower
/// bound. The largest for one type; for 2 to 16, where moving weight between two types or between
/// loads and chain no longer helps; for more, with types that are equally good for the sum of all
/// work. `theta` and `lambda`, if not null, are those of the bound. Checked against enumeration:
/// tests/experiment/lower_bound_test.cpp.
[[nodiscard]] double least_makespan(const std::vector<Divided>& work,
                                    const std::vector<std::int64_t>& counts,
                                    double* theta = nullptr, std::vector<double>* lambda = nullptr);

/// A lower bound of the step of any plan that works on these devices, for the input's network,
/// cluster, costs, batch, precisions and optimizer; nothing if kernels have no bound
/// (CostModel::least_time): least_makespan() of every layer's passes at their best price (whole
/// waves, matrices as large as the batch allows), with what must follow each other
/// (longest_chain), and of one update of every parameter. A device runs one kernel at a time.
///
/// Bytes on links, memory, and recomputation are not counted.
[[nodiscard]] std::optional<Seconds> least_step(const strategies::StrategyInput& input,
                                                const std::vector<DeviceId>& devices);

/// Sets `lower_bound` of the rows with a plan: for the GPUs, and what else the row's plan uses.
void bound_steps(const Experiment& experiment, std::span<RunResult> results);

}  // namespace parsim::experiment
