// One step of a published training run, simulated with its own script's exchange of gradients.
#pragma once

#include <memory>

#include "core/cost_model.hpp"
#include "core/exec_dag.hpp"
#include "sim/sim.hpp"
#include "validation/validation.hpp"

namespace parsim {

/// Collectives as NCCL runs them, with the terms of no system in particular.
[[nodiscard]] SimOptions nccl_of_no_system();

/// Of the words of a row's `precision`; FP32 if it has none. Throws InputError for other words.
[[nodiscard]] Precision precision_of(const Claim& claim);

/// Training as a row says: network, machine, precision, batch, optimizer, and either how layers,
/// stages and states are spread (app/published_plan.hpp; Adam, which all such rows used) or where
/// the gradients of data parallelism are added up (app/framework_step.hpp). Column `profile` names
/// a file of measured times of layers (app/layer_times.hpp). Throws InputError for what nobody
/// understands.
class Training {
 public:
  explicit Training(const Claim& claim);

  /// Seconds of one step with kernels that take `factor` times as long.
  [[nodiscard]] double step(double factor) const;
  /// Samples of one step.
  [[nodiscard]] double samples() const { return static_cast<double>(batch_); }
  [[nodiscard]] const ExecDag& dag() const { return dag_; }
  [[nodiscard]] const Cluster& cluster() const { return cluster_; }

 private:
  Cluster cluster_;
  SimOptions options_;
  std::unique_ptr<CostModel> tiles_;
  std::int64_t batch_ = 0;
  ExecDag dag_;
};

/// What a row states of a step of so many samples: its time in ms, or samples per second.
[[nodiscard]] double in_unit_of(const Claim& claim, double samples, double seconds);

/// The factor with which a step takes `wanted` seconds. Kernels of one device are a sum, so that
/// two steps of the secant method are more than enough; more devices wait for each other.
[[nodiscard]] double fitted_factor(const Training& training, double wanted);

}  // namespace parsim
