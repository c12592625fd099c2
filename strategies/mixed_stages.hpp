// Plans for mixed clusters: pipelines whose stages differ in device type, tensor degree, replicas
// and blocks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lowering/estimate.hpp"
#include "strategies/layout.hpp"

namespace parsim::strategies {

/// A layout with its number of micro-batches.
struct MixedStages {
  Layout layout;
  std::int32_t micro_batches = 1;
  double step = 0;     ///< by the closed form, seconds
  bool waits = false;  ///< in which stages wait for what they exchange
};

/// Whether the search below has something to choose: GPUs of several kinds (model, memory, number
/// in a machine or links), a network of two blocks or more, and no degrees given but those of
/// tensor, pipeline and data parallelism, which every stage then has.
[[nodiscard]] bool has_mixed_stages(const StrategyInput& input);

/// The most promising layouts by a closed form, best first, up to `count` of every number of
/// micro-batches, as long as they are not a fifth slower than the best. A
/// stage has the devices that mixed::stage_shapes offers, devices may be left out, stages are in
/// any order of device types, and each has as many blocks as mixed::best_pipelines finds best. If
/// sends block, those that are best if stages wait for all that they exchange, and those that are
/// if they wait for nothing: replicas that take turns on a link wait for less than the closed form
/// says. Empty without blocks or for more than four kinds of devices.
[[nodiscard]] std::vector<MixedStages> mixed_stages(const StrategyInput& input, std::size_t count);

/// As many of each number of micro-batches as there is time to look at.
[[nodiscard]] std::vector<MixedStages> mixed_stages(const StrategyInput& input);

/// The best of these layouts by simulation of their plans, or by estimate without one, with borders
/// moved block by block and neighbouring stages joined to one, whose unlike devices share its
/// layers by speed, best first. Those that do not fit are left out, unless none fits; likewise
/// those that may not be chosen (StrategyInput::accepts), unless none may.
[[nodiscard]] std::vector<MixedStages> best_stages(const StrategyInput& input,
                                                   lowering::Estimator& estimator,
                                                   std::size_t count,
                                                   std::vector<MixedStages> layouts);

/// The plan of a layout.
[[nodiscard]] Plan plan_of_stages(const StrategyInput& input, const MixedStages& stages);

/// Plans of best_stages.
[[nodiscard]] std::vector<Plan> mixed_plans(const StrategyInput& input,
                                            lowering::Estimator& estimator, std::size_t count,
                                            std::vector<MixedStages> layouts);

/// A plan whose stages differ with some of them changed (mixed::vary_stages), if its simulation
/// says that it is better then; in the options and the schedule that the plan has. Nothing
/// otherwise, of plans of other kinds, and where there is time for a few simulations only.
[[nodiscard]] std::optional<Plan> varied_stages(const StrategyInput& input,
                                                lowering::Estimator& estimator, const Plan& plan);

/// Why each stage of a pipeline on a mixed cluster is as it is, by the plan's own options and
/// schedule, a line a stage: see mixed::stage_reasons. Empty for plans of other kinds.
[[nodiscard]] std::vector<std::string> stage_reasons(const StrategyInput& input, const Plan& plan);

}  // namespace parsim::strategies
