#include "strategies/hypergraph/order.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "core/errors.hpp"

namespace parsim::hypergraph {

namespace {

struct Stage {
  std::set<std::int32_t> reads, read_by;         ///< other stages
  std::map<DeviceId, double> forward, backward;  ///< seconds on each of its devices
  [[nodiscard]] const std::map<DeviceId, double>& times(Direction direction) const {
    return direction == Direction::forward ? forward : backward;
  }
};

std::vector<DeviceId> devices_of_layer(const LayerPlan& layer) {
  std::vector<DeviceId> devices = layer.devices;
  std::sort(devices.begin(), devices.end());
  devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  return devices;
}

/// Runs of layers on the same devices; inputs belong to the layer after them.
std::vector<std::int32_t> stages_of(const Network& network, const std::vector<LayerPlan>& layers) {
  std::vector<std::int32_t> stage_of(layers.size(), 0);
  std::int32_t stage = -1;
  std::vector<DeviceId> current;
  for (std::size_t l = 0; l < layers.size(); ++l) {
    if (network.layers[l].kind.as<Input>() != nullptr) continue;
    std::vector<DeviceId> devices = devices_of_layer(layers[l]);
    if (stage < 0 || devices != current) {
      ++stage;
      current = std::move(devices);
    }
    stage_of[l] = stage;
  }
  const auto readers = consumers(network);
  for (std::size_t l = 0; l < layers.size(); ++l) {
    if (network.layers[l].kind.as<Input>() == nullptr) continue;
    const auto reader = std::find_if(readers[l].begin(), readers[l].end(), [&](const Consumer& c) {
      return network[c.layer].kind.as<Input>() == nullptr;
    });
    if (reader != readers[l].end()) stage_of[l] = stage_of[reader->layer.index()];
  }
  return stage_of;
}

std::vector<Stage> described(const StrategyInput& input, const std::vector<LayerPlan>& layers,
                             const std::vector<std::int32_t>& stage_of, std::int64_t samples) {
  std::vector<Stage> stages(
      static_cast<std::size_t>(*std::max_element(stage_of.begin(), stage_of.end())) + 1);
  for (std::size_t l = 0; l < layers.size(); ++l) {
    const LayerId id{l};
    Stage& stage = stages[static_cast<std::size_t>(stage_of[l])];
    for (const LayerId from : input.network[id].inputs) {
      const std::int32_t other = stage_of[from.index()];
      if (other == stage_of[l] || input.network[from].kind.as<Input>() != nullptr) continue;
      stage.reads.insert(other);
      stages[static_cast<std::size_t>(other)].read_by.insert(stage_of[l]);
    }
    const bool source = input.network[id].kind.as<Input>() != nullptr;
    for (const Cell& cell : cells(input.network, id, layers[l], samples)) {
      double& forward = stage.forward[cell.device];
      double& backward = stage.backward[cell.device];
      if (source) continue;
      const auto time = [&](Pass pass) {
        return input.cost.compute(input.network, id, cell.part, pass, cell.device, input.precision)
            .time.count();
      };
      forward += time(Pass::forward);
      backward += time(Pass::backward);
    }
  }
  return stages;
}

/// All slots in the order of their starts.
std::vector<Slot> list_schedule(const std::vector<Stage>& stages, std::int32_t micro_batches,
                                std::int32_t under_way) {
  std::map<Slot, double> ends;
  std::map<DeviceId, double> free;
  std::vector<std::int32_t> next_forward(stages.size(), 0), next_backward(stages.size(), 0);
  std::vector<Slot> order;
  /// When everything that a slot waits for has ended; negative: not scheduled yet.
  const auto ready = [&](const Slot& slot) {
    double latest = 0;
    const auto wait = [&](const Slot& other) {
      const auto end = ends.find(other);
      latest = end == ends.end() || latest < 0 ? -1.0 : std::max(latest, end->second);
    };
    const Stage& stage = stages[static_cast<std::size_t>(slot.stage)];
    if (slot.direction == Direction::forward) {
      for (const std::int32_t other : stage.reads)
        wait({other, slot.micro_batch, Direction::forward});
    } else {
      wait({slot.stage, slot.micro_batch, Direction::forward});
      for (const std::int32_t other : stage.read_by)
        wait({other, slot.micro_batch, Direction::backward});
    }
    return latest;
  };
  while (true) {
    Slot chosen;
    double earliest = -1;
    const auto consider = [&](const Slot& slot) {
      const double after = ready(slot);
      if (after < 0) return;
      double start = after;
      for (const auto& [device, time] :
           stages[static_cast<std::size_t>(slot.stage)].times(slot.direction))
        start = std::max(start, free[device]);
      const bool better = earliest < 0 || start < earliest ||
                          (start == earliest && slot.direction == Direction::backward &&
                           chosen.direction == Direction::forward);
      if (better) {
        earliest = start;
        chosen = slot;
      }
    };
    for (std::size_t s = stages.size(); s-- > 0;) {
      const auto stage = static_cast<std::int32_t>(s);
      if (next_backward[s] < micro_batches)
        consider({stage, next_backward[s], Direction::backward});
      if (next_forward[s] < micro_batches && next_forward[s] - next_backward[s] < under_way)
        consider({stage, next_forward[s], Direction::forward});
    }
    if (earliest < 0) break;
    double end = earliest;
    for (const auto& [device, time] :
         stages[static_cast<std::size_t>(chosen.stage)].times(chosen.direction)) {
      double& until = free[device];
      until = std::max(until, earliest) + time;
      end = std::max(end, until);
    }
    ends[chosen] = end;
    ++(chosen.direction == Direction::forward
           ? next_forward
           : next_backward)[static_cast<std::size_t>(chosen.stage)];
    order.push_back(chosen);
  }
  ensure(order.size() == 2 * stages.size() * static_cast<std::size_t>(micro_batches),
         "a list schedule reaches every slot");
  return order;
}

}  // namespace

Schedule pipelined(const StrategyInput& input, const std::vector<LayerPlan>& layers,
                   std::int32_t micro_batches) {
  std::set<DeviceId> used;
  for (const LayerPlan& layer : layers) used.insert(layer.devices.begin(), layer.devices.end());
  Schedule schedule;
  schedule.micro_batches = micro_batches;
  schedule.stage_of_layer.assign(layers.size(), 0);
  if (micro_batches == 1) {
    schedule.lanes = {
        {{used.begin(), used.end()}, {{0, 0, Direction::forward}, {0, 0, Direction::backward}}}};
    return schedule;
  }
  schedule.stage_of_layer = stages_of(input.network, layers);
  const std::vector<Stage> stages =
      described(input, layers, schedule.stage_of_layer, input.batch / micro_batches);
  const auto under_way = input.schedule == PipelineSchedule::gpipe
                             ? micro_batches
                             : static_cast<std::int32_t>(std::max<std::size_t>(2, used.size()));
  const std::vector<Slot> order = list_schedule(stages, micro_batches, under_way);
  for (const DeviceId device : used) {
    Lane lane{{device}, {}};
    for (const Slot& slot : order) {
      if (stages[static_cast<std::size_t>(slot.stage)].forward.contains(device))
        lane.slots.push_back(slot);
    }
    schedule.lanes.push_back(std::move(lane));
  }
  return schedule;
}

}  // namespace parsim::hypergraph
