// One step of a published training run.
#pragma once

#include <memory>
#include <utility>

#include "core/cost_model.hpp"
#include "core/exec_dag.hpp"
#include "experiment/step_parts.hpp"
#include "lowering/headroom.hpp"
#include "sim/sim.hpp"
#include "validation/validation.hpp"

namespace parsim::validation {

/// Options of NCCL in the version of the row's `nccl_version`, with the default terms of its costs.
[[nodiscard]] sim::SimOptions default_nccl_options(const Claim& claim);
/// Column `fusion`; without it megatron for Megatron-LM (not its version 1) and what is built on
/// it, compiled for frameworks whose name says so (torchtitan compiles only if asked to), else
/// none.
[[nodiscard]] sim::Fusion fusion_of(const Claim& claim);

/// Of the row's column `precision`; FP32 if it is empty. Throws InputError for an unknown one.
[[nodiscard]] Precision precision_of(const Claim& claim);

/// The precision in which gradients are summed: column `reduce_precision`, or that of the kernels
/// under trainers that do not cast, or the default of the command line. Throws InputError unless it
/// is FP32, FP16 or BF16.
[[nodiscard]] Precision reduce_precision_of(const Claim& claim);

/// Sets what the row says of cards that are not those of the data sheet: the rate of their memory
/// (column gpu_memory_rate), and a limit of their power (power_limit); else what `machine` and
/// `gpu` say of both. Throws InputError for a rate or limit that cannot be.
void set_stated_rates(const Claim& claim, Cluster& cluster);

/// Peak memory of a device.
struct PeakMemory {
  Bytes needed{}, memory{};
  lowering::Verdict verdict = lowering::Verdict::fits;
};

/// The training run of a row: network, machine, precisions, batch, optimizer, and either a plan
/// (validation/published_plan.hpp; Adam, if column `optimizer` does not name another) or data
/// parallelism by all-reduce (momentum). Column `profile` names a file of measured times of layers
/// (experiment/layer_times.hpp). Throws InputError for a row that cannot be expressed.
class Training {
 public:
  /// `launch`: what collectives take beyond NCCL's model, in place of what their links' kind gives
  explicit Training(const Claim& claim, std::optional<Seconds> launch = {});

  /// Seconds of one step with kernels slower by the factor `kernels`, and links between machines at
  /// the share `links` of their rate.
  [[nodiscard]] double step(double kernels, double links = 1) const {
    return simulated(kernels, links, 0, nullptr);
  }
  /// The same step, with `host` seconds before it, and what it depends on.
  [[nodiscard]] std::pair<double, experiment::StepParts> step_and_parts(double kernels,
                                                                        double links,
                                                                        double host) const {
    experiment::StepParts parts;
    const double seconds = simulated(kernels, links, host, &parts);
    return {seconds, parts};
  }
  /// Samples of one step.
  [[nodiscard]] double samples() const { return static_cast<double>(batch_); }
  /// Folded, if the plan has equal replicas or ranks.
  [[nodiscard]] const ExecDag& dag() const { return dag_; }
  /// Of the device with the highest share of memory used, with the default headroom.
  [[nodiscard]] const PeakMemory& memory() const { return memory_; }
  [[nodiscard]] const Cluster& cluster() const { return cluster_; }
  [[nodiscard]] sim::Fusion fusion() const { return options_.fusion; }
  /// Seconds of a step of the row.
  [[nodiscard]] double measured(const Claim& claim) const {
    return claim.unit == "ms" ? 1e-3 * claim.expected : samples() / claim.expected;
  }

 private:
  /// `parts` may be null.
  [[nodiscard]] double simulated(double kernels, double links, double host,
                                 experiment::StepParts* parts) const;

  Cluster cluster_;
  sim::SimOptions options_;
  std::unique_ptr<CostModel> tiles_;
  std::int64_t batch_ = 0;
  Plan plan_;
  ExecDag dag_;  ///< folded, if the plan has equal replicas or ranks
  PeakMemory memory_;
};

/// Throws InputError for a unit of a row's `value` other than ms or a rate of samples.
void check_unit(const Claim& claim);

/// Cost of simulating a row with a layout, of the order of its operations: layers x micro-batches x
/// GPUs / stages; 0 for other rows, which are short. A million takes some two seconds. Throws
/// InputError for degrees that contradict each other.
[[nodiscard]] double simulation_length(const Claim& claim);

/// A step in the unit of the row: its time in ms, or samples per second.
[[nodiscard]] double in_unit_of(const Claim& claim, double samples, double seconds);

/// Fitted factors stay within 1/5 to 5: those of all built-in rows lie between 0.75 and 1.7, so
/// that further off the model of the row is wrong, and its error should show.
inline constexpr double largest_factor = 5;

/// The factor of kernels with which a step takes `wanted` seconds, by the secant method. On one
/// device the step is linear in it; several devices wait for each other.
[[nodiscard]] double fitted_factor(const Training& training, double wanted);

/// Kernel times by the cost model: forward and backward, no update.
struct SingleStep {
  double squares =
      0;  ///< seconds in 3x3 convolutions of stride 1, which Winograd's method speeds up
  double others = 0;             ///< seconds in other kernels
  double flops = 0;              ///< forward
  std::optional<Watts> power{};  ///< that the card draws at most
  /// The same seconds by class.
  experiment::StepParts squares_by_class{}, others_by_class{};

  /// Shares of the step whose squares take `factor` times as long.
  [[nodiscard]] experiment::StepParts parts(double factor) const;
};
/// Throws InputError for a row that cannot be expressed.
[[nodiscard]] SingleStep single_step(const Claim& claim);

}  // namespace parsim::validation
