#include "strategies/mixed/layouts.hpp"

#include <algorithm>

namespace parsim::strategies::mixed {

std::optional<Layout> layout_of(const std::vector<DeviceClass>& classes, const StageCosts& costs,
                                const ShapedPipeline& pipeline) {
  Placement placement(classes);
  Layout layout;
  for (std::size_t s = 0; s < pipeline.shapes.size(); ++s) {
    LayoutStage& one = layout.stages.emplace_back();
    one.first = costs.first_layers()[pipeline.first_block[s]];
    for (const Member& member : pipeline.shapes[s].members) {
      auto groups = placement.take(member.of_class, member.tensor, member.count);
      if (!groups) return std::nullopt;
      one.groups.insert(one.groups.end(), groups->begin(), groups->end());
      one.samples.insert(one.samples.end(), member.samples.begin(), member.samples.end());
    }
  }
  return layout;
}

std::size_t class_of(const std::vector<DeviceClass>& classes, DeviceId device) {
  const auto has = [&](const DeviceClass& one) {
    return std::any_of(one.machines.begin(), one.machines.end(), [&](const auto& machine) {
      return std::find(machine.begin(), machine.end(), device) != machine.end();
    });
  };
  return static_cast<std::size_t>(std::find_if(classes.begin(), classes.end(), has) -
                                  classes.begin());
}

StageShape shape_of(const std::vector<DeviceClass>& classes, const LayoutStage& stage) {
  StageShape shape;
  for (std::size_t g = 0; g < stage.groups.size(); ++g) {
    const std::size_t of_class = class_of(classes, stage.groups[g][0]);
    const std::size_t size = stage.groups[g].size();
    const bool same = !shape.members.empty() && shape.members.back().of_class == of_class &&
                      shape.members.back().tensor == size;
    if (!same) shape.members.push_back({of_class, size, 0, {}});
    ++shape.members.back().count;
    if (!stage.samples.empty()) shape.members.back().samples.push_back(stage.samples[g]);
  }
  return shape;
}

std::optional<ShapedPipeline> shaped_as(const std::vector<DeviceClass>& classes,
                                        const StageCosts& costs, const Layout& layout) {
  const std::vector<std::size_t>& first = costs.first_layers();
  ShapedPipeline pipeline;
  for (const LayoutStage& stage : layout.stages) {
    for (const std::vector<DeviceId>& group : stage.groups) {
      const auto other = [&](DeviceId device) {
        return class_of(classes, device) != class_of(classes, group[0]);
      };
      if (std::any_of(group.begin(), group.end(), other)) return std::nullopt;
    }
    pipeline.shapes.push_back(shape_of(classes, stage));
    const auto block = std::lower_bound(first.begin(), first.end(), stage.first);
    pipeline.first_block.push_back(static_cast<std::size_t>(block - first.begin()));
  }
  return pipeline;
}

}  // namespace parsim::strategies::mixed
