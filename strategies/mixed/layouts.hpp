// Pipelines of shapes as layouts on devices, and back. Private to the search for mixed stages.
#pragma once

#include <optional>
#include <vector>

#include "strategies/layout.hpp"
#include "strategies/mixed/stage_table.hpp"

namespace parsim::strategies::mixed {

/// The layout of a pipeline on actual devices; nothing if its groups do not fit into machines.
[[nodiscard]] std::optional<Layout> layout_of(const std::vector<DeviceClass>& classes,
                                              const StageCosts& costs,
                                              const ShapedPipeline& pipeline);

/// The class of a device, which has one.
[[nodiscard]] std::size_t class_of(const std::vector<DeviceClass>& classes, DeviceId device);

/// The shape of a stage whose groups have devices of one class each.
[[nodiscard]] StageShape shape_of(const std::vector<DeviceClass>& classes,
                                  const LayoutStage& stage);

/// The shapes of a layout's stages and the blocks that they begin with; nothing where groups have
/// devices of several classes.
[[nodiscard]] std::optional<ShapedPipeline> shaped_as(const std::vector<DeviceClass>& classes,
                                                      const StageCosts& costs,
                                                      const Layout& layout);

}  // namespace parsim::strategies::mixed
