// Whether plans of some degrees will fit, roughly, without making them. Private to `best`.
#pragma once

#include <map>
#include <span>
#include <utility>

#include "lowering/estimate.hpp"
#include "strategies/strategies.hpp"
#include "strategies/tensor/arrangement.hpp"

namespace parsim::strategies {

/// Tells degrees that need recomputation, or too much memory anyway, from the others: before a
/// search prices any plan. From the memory that one replica of one stage needs for one sample, of
/// which a stage of a pipeline has its part, as often as it has micro-batches in flight.
class MemoryForecast {
 public:
  static constexpr double will_not_fit = 1000;
  MemoryForecast(const StrategyInput& input, lowering::Estimator& estimator);

  /// How many times as long a step takes with as much recomputation as lets the first stage fit, or
  /// the average one, if devices are unlike or stages unequal: 1, if it does without, else with
  /// full (or optimal) recomputation. will_not_fit if not even then. With the ZeRO stage that is
  /// asked for, or else with ZeRO 1, or 3 if that is slower by less.
  ///
  /// devices   of all stages
  [[nodiscard]] double slowdown(const tensor::ParallelDegrees& degrees,
                                std::span<const DeviceId> devices);
  /// Whether they fit with as much recomputation as there is and no more than ZeRO 1, unless
  /// another stage is asked for, and with memory to spare: nine of ten plans of them do.
  [[nodiscard]] bool fits_easily(const tensor::ParallelDegrees& degrees,
                                 std::span<const DeviceId> devices);

 private:
  /// Of one stage with one replica, for one sample of a micro-batch, bytes; seconds of a step.
  struct Sample {
    double weights = 0, gradients = 0, optimizer_state = 0, activations = 0, step = 0;
  };
  struct Samples {
    Sample least, most;    ///< recomputation
    bool possible = true;  ///< to lower
  };
  const Samples& samples(const tensor::ParallelDegrees& degrees, std::span<const DeviceId> devices);
  [[nodiscard]] Sample measure(const Plan& plan, Recompute recompute);
  /// Samples of a micro-batch in a replica.
  [[nodiscard]] double of_replica(const tensor::ParallelDegrees& degrees) const;
  /// How many times as long a step takes whose weights are gathered for every pass of a
  /// micro-batch, where kernels hide as much of that as they can.
  [[nodiscard]] double gathering(const Sample& sample, const tensor::ParallelDegrees& degrees,
                                 std::span<const DeviceId> devices) const;
  [[nodiscard]] double needed(const Sample& sample, const tensor::ParallelDegrees& degrees,
                              std::int32_t zero_stage, bool first_stage) const;

  StrategyInput input_;  ///< of one sample
  std::int64_t batch_;
  double gathered_ = 0;  ///< share of all weights that stage 3 of ZeRO holds whole: of two buckets
  lowering::Estimator& estimator_;
  tensor::Arranging arranging_;
  std::map<std::pair<std::size_t, std::size_t>, Samples> known_;  ///< by tensor, context
};

}  // namespace parsim::strategies
