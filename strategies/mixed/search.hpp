// The search over stages that differ. Private to strategies/mixed_stages.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "strategies/mixed/stage_costs.hpp"
#include "strategies/stages.hpp"

namespace parsim::strategies::mixed {

/// A stage of a pipeline: its devices and how many blocks it has.
struct Stage {
  std::size_t shape = 0;  ///< index into the shapes that were searched
  std::size_t first_block = 0;
};

/// Stages from the first to the last, with the closed form of their step.
struct Pipeline {
  std::vector<Stage> stages;
  double step = 0;
};

/// What a search looks at: everything, or what usually matters.
enum class Detail : std::uint8_t { all, coarse };

/// What may be chosen for a stage, by number of micro-batches.
///
/// - Devices of one class: t devices that share each layer, in d groups that share the samples
///   evenly. In all detail any t and d, else powers of two within a machine and whole machines.
/// - Members of several classes: each with its t and d, samples by speed. In all detail any, else
///   one machine of each or all of them.
/// - Of these only shapes with the t (--tp) and the replicas (--dp) that the input asks for.
[[nodiscard]] std::vector<StageShape> stage_shapes(const StrategyInput& input,
                                                   const std::vector<DeviceClass>& classes,
                                                   StageCosts& costs, std::int32_t micro_batches,
                                                   Detail detail);

/// Clusters of more devices are not searched in all detail.
inline constexpr std::size_t few_devices = 16;
/// Nor further after so many steps of the programme, about two seconds in all.
inline constexpr std::int64_t most_steps_in_detail = 16'000'000;

/// Gives the members of a shape their samples of a micro-batch, by speed; false if one of them
/// would be idle. Each gets `least`, see finish_together.
[[nodiscard]] bool share_samples(StageCosts& costs, std::int64_t samples, std::int64_t least,
                                 StageShape& shape);

/// What an order of micro-batches makes of the times of stages, see best_pipelines.
struct ClosedForm {
  ClosedForm(const StrategyInput& input, std::int32_t micro_batches);
  double rounds;             ///< periods of a step
  double of_sum = 1;         ///< of a load, before and after these
  double of_path = 1;        ///< of a load, from a micro-batch's forward pass to its return
  double of_last = 2.0 / 3;  ///< of a load, after the last backward pass of the stage behind
  double of_send = 0;        ///< of each send of a stage, of its period
  PipelineSchedule schedule;
  std::int32_t micro_batches;
  /// Micro-batches that a stage of so many keeps.
  [[nodiscard]] std::int32_t in_flight(std::size_t stage, std::size_t stages) const;
  /// The period of which a stage is the cause because no more are in flight. `path`: from it to the
  /// end and back.
  [[nodiscard]] double in_turn(double path, std::size_t stage, std::size_t stages) const;
  // What follows takes the time that products for weight gradients really need, ZB-H1's third part.
  /// Of a load, before and after the rounds.
  [[nodiscard]] double outside(double load, double weights) const {
    return is_zero_bubble(schedule) ? load - 2 * weights : load;
  }
  /// Of a load, from a micro-batch's forward pass to its return.
  [[nodiscard]] double path(double load, double weights) const {
    return is_zero_bubble(schedule) ? load - weights : load;
  }
  /// How many more micro-batches the first of some stages has in flight than the one behind the
  /// last: one for each of them, in ZB-H2 two.
  [[nodiscard]] double apart(std::size_t first, std::size_t last, std::size_t stages) const;
  /// How much longer than a bound on the period some stages from one on keep the micro-batches that
  /// they have in flight: without the weights of the first. `behind`: the same of the next stage;
  /// `send`: to it, one way.
  [[nodiscard]] static double excess(double path, double bound) { return path - bound; }
  [[nodiscard]] double excess(double path, double bound, double send, double behind) const {
    return path - apart(0, 0, 2) * bound + std::max(0.0, 2 * send + behind);
  }
  /// Whether the bound is too short for a stage with this excess.
  [[nodiscard]] bool exceeds(double excess, double load, double path) const {
    return schedule != PipelineSchedule::gpipe && excess + load - path > 1e-12;
  }
  /// The shortest period for which none of the stages exceeds it. `sends`: from each but the last.
  [[nodiscard]] double in_turn(const std::vector<double>& loads, const std::vector<double>& paths,
                               const std::vector<double>& sends) const;
};

/// The best pipelines for a number of micro-batches, best first, with different devices for their
/// stages, by
///
///     step = Σ load + 2 Σ send + (micro-batches - 1) · period + afterwards
///
/// and of ZB-H1 a third of the loads and 2 / 3 of a period more.
///
/// period   the longest of: the load of a stage, if sends block with all that it exchanges with the
///          stages around it; what crosses the links of a machine in one
///          direction with a micro-batch; and, unless in GPipe, for every stage, the time that a
///          micro-batch takes from there to the end of the pipeline and back, in ZB-H1 without the
///          third of a load that is for weights, divided by the micro-batches that the stage has in
///          flight, one for each stage from it on
/// afterwards   updates and sums of gradients that outlast the last backward passes of the stages
///              before
///
/// A dynamic programme from the last block to the first, so that a stage knows how many
/// micro-batches it has in flight, over (blocks left, devices used by class, stages, devices of the
/// next stage), for growing bounds on the period. Without all detail a class that the pipeline has
/// left is not used again, and of the pipelines that differ only in their number of stages the one
/// with the least sum counts. Of the number of stages that the input asks for, if it does (--pp).
///
/// limit   on the step
/// steps   of the programme that may be taken; what is left of them when it returns, 0 or less
///         where they did not suffice: then longer periods were not looked at
///
/// Checked against all pipelines: tests/strategies/mixed_stages_test.cpp.
[[nodiscard]] std::vector<Pipeline> best_pipelines(
    const StrategyInput& input, const std::vector<DeviceClass>& classes, StageCosts& costs,
    const std::vector<StageShape>& shapes, std::int32_t micro_batches, std::size_t count,
    double limit, Detail detail, std::int64_t& steps);

}  // namespace parsim::strategies::mixed
