// Why a stage has its devices, width and blocks. Private to strategies/mixed_stages.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "strategies/layout.hpp"
#include "strategies/mixed/stage_costs.hpp"

namespace parsim::strategies::mixed {

/// The stages of a plan. Nothing if they are no runs of whole blocks in the order of the network,
/// or if a replica of one has devices of several classes.
[[nodiscard]] std::optional<Layout> layout_of_plan(const StrategyInput& input,
                                                   const std::vector<DeviceClass>& classes,
                                                   const Plan& plan);

/// The input with the memory options, the order and the options of groups that the plan has.
[[nodiscard]] StrategyInput as_planned_in(StrategyInput input, const Plan& plan);

/// "2 stages of 8 micro-batches in a pipeline, replicas x tensor: 2x1 v100-sxm2, 1x4 t4": stages in
/// their order, equal neighbours once.
[[nodiscard]] std::string stages_note(const StrategyInput& input, const Layout& layout,
                                      std::int32_t micro_batches);

/// A line for each stage: its blocks and devices, its memory and its time for a micro-batch beside
/// those of the slowest stage, and what would become of it with one block more, with half and with
/// twice the tensor degree on as many devices, and on as many devices of other kinds. Times and
/// memory as the search counts them.
[[nodiscard]] std::vector<std::string> stage_reasons(const StrategyInput& input,
                                                     const std::vector<DeviceClass>& classes,
                                                     StageCosts& costs, const Layout& layout,
                                                     const Plan& plan);

/// What a stage of one block would be on devices of one class that a plan leaves out.
struct IdleClass {
  /// That even in its best shape a block takes longer there than the slowest stage for a
  /// micro-batch, or needs too much memory, or that handing a micro-batch over takes longer.
  /// Empty if a stage on them could keep up.
  std::string reason;
  Member fastest;  ///< of the shapes that have memory for a block
};

/// free   how many of the class
[[nodiscard]] IdleClass idle_class(const StrategyInput& input,
                                   const std::vector<DeviceClass>& classes, StageCosts& costs,
                                   const Layout& layout, const Plan& plan, std::size_t of_class,
                                   std::size_t free);

}  // namespace parsim::strategies::mixed
