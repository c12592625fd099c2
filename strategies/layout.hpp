// A plan that is given instead of searched for: which layers, devices and samples every stage has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "strategies/strategies.hpp"

namespace parsim::strategies {

/// A stage of a pipeline.
struct LayoutStage {
  std::size_t first = 0;  ///< its first layer; it ends where the next stage begins
  /// By replica, the devices that share each of its layers (a tensor-parallel group, as
  /// tensor::split shares them). Groups may differ in size, within a stage and between stages.
  std::vector<std::vector<DeviceId>> groups;
  /// By replica, of a micro-batch. Empty: equal, or by speed (StrategyInput::shares).
  std::vector<std::int64_t> samples;
  /// By replica and device: its share of each layer, in units that a group may choose. Empty:
  /// equal.
  std::vector<std::vector<std::int64_t>> parts{};
  friend bool operator==(const LayoutStage&, const LayoutStage&) = default;
};

struct Layout {
  std::vector<LayoutStage> stages;
  /// Model chunks of each device (device_slots): stages s, s + stages / chunks, ... have the same
  /// groups.
  std::int32_t chunks = 1;
  friend bool operator==(const Layout&, const Layout&) = default;
};

/// Groups of equal size as Megatron-LM numbers them: device k of replica r of stage s is devices[(s
/// · data + r) · tensor + k] (Narayanan et al. 2021, "Efficient Large-Scale Language Model Training
/// on GPU Clusters Using Megatron-LM", section 3).
///
/// first     by stage, its first layer
/// devices   stages / chunks · data · tensor of them
/// chunks    model chunks of each device; divides the number of stages
[[nodiscard]] Layout even_layout(const std::vector<std::size_t>& first, std::size_t tensor,
                                 std::size_t data, const std::vector<DeviceId>& devices,
                                 std::int32_t chunks = 1);

/// Exactly these stages, groups and samples, with the input's micro-batches (default 1) and
/// pipeline schedule. Where replicas of a stage have groups of different size that would cut a
/// layer along different dimensions, all devices compute the layer, and the plan gets a note.
///
/// Throws InputError in the name of "layout" for a stage without layers, devices or an existing
/// layer to begin with, a device in two groups, samples that are no micro-batch, model chunks on
/// other devices than the first or that cannot be interleaved, and parts that are not one for each
/// device or, if unequal, together with context or expert parallelism or overlapped products.
[[nodiscard]] Plan plan_layout(const StrategyInput& input, const Layout& layout);

}  // namespace parsim::strategies
