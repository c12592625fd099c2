// One step of a published training run.
#pragma once

#include <memory>

#include "core/cost_model.hpp"
#include "core/exec_dag.hpp"
#include "lowering/headroom.hpp"
#include "sim/sim.hpp"
#include "validation/validation.hpp"

namespace parsim {

/// Collectives as NCCL runs them, in the version that the row's `nccl_version` says, with the terms
/// of no system in particular.
[[nodiscard]] SimOptions nccl_of_no_system(const Claim& claim);

/// Of the words of a row's `precision`; FP32 if it has none. Throws InputError for other words.
[[nodiscard]] Precision precision_of(const Claim& claim);

/// In which a row sums gradients: its `reduce_precision`, or the default of the command line.
/// Throws InputError for other words than FP32, FP16 and BF16.
[[nodiscard]] Precision reduce_precision_of(const Claim& claim);

/// What a device needs of its memory.
struct PeakMemory {
  Bytes needed{}, memory{};
  Verdict verdict = Verdict::fits;
};

/// Training as a row says: network, machine, precisions, batch, optimizer, and either how layers,
/// stages and states are spread (validation/published_plan.hpp; Adam, which all such rows used) or
/// data parallelism by all-reduce. Column `profile` names a file of measured times of layers
/// (experiment/layer_times.hpp). Throws InputError for a row that cannot be expressed.
class Training {
 public:
  explicit Training(const Claim& claim);

  /// Seconds of one step with kernels that take `kernels` times as long, and links between machines
  /// that reach this part of their rate.
  [[nodiscard]] double step(double kernels, double links = 1) const;
  /// Samples of one step.
  [[nodiscard]] double samples() const { return static_cast<double>(batch_); }
  [[nodiscard]] const ExecDag& dag() const { return dag_; }
  /// Of the device that uses the largest part of what it may fill, with the headroom that users
  /// get.
  [[nodiscard]] const PeakMemory& memory() const { return memory_; }
  [[nodiscard]] const Cluster& cluster() const { return cluster_; }

 private:
  Cluster cluster_;
  SimOptions options_;
  std::unique_ptr<CostModel> tiles_;
  std::int64_t batch_ = 0;
  ExecDag dag_;
  PeakMemory memory_;
};

/// How long the simulation of a row with a layout is, of the order of operations: layers x
/// micro-batches x GPUs / stages; 0 for other rows, which are short. A million takes some two
/// seconds. Throws InputError for degrees that contradict each other.
[[nodiscard]] double simulation_length(const Claim& claim);

/// What a row states of a step of so many samples: its time in ms, or samples per second.
[[nodiscard]] double in_unit_of(const Claim& claim, double samples, double seconds);

/// No term that is fitted leaves 1/5 to 5: those of all built-in rows lie between 0.75 and 1.7, so
/// further off a row is not understood, and its error shall be seen.
inline constexpr double largest_factor = 5;

/// The factor with which a step takes `wanted` seconds. Kernels of one device are a sum, so that
/// two steps of the secant method are more than enough; more devices wait for each other.
[[nodiscard]] double fitted_factor(const Training& training, double wanted);

}  // namespace parsim
