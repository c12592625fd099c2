#include <algorithm>
#include <map>
#include <set>

#include "core/errors.hpp"
#include "strategies/hypergraph/search.hpp"

namespace parsim::strategies::hypergraph {

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
      if (other == stage_of[l]) continue;
      stage.reads.insert(other);
      stages[static_cast<std::size_t>(other)].read_by.insert(stage_of[l]);
    }
    const bool source = input.network[id].kind.as<Input>() != nullptr;
    for (const Cell& cell : cells(input.network, id, layers[l], samples)) {
      double& forward = stage.forward[cell.device];
      double& backward = stage.backward[cell.device];
      if (source) continue;
      const auto time = [&](Pass pass) {
        return kernel_time(input.cost, input.network, id, cell.part, pass, cell.device,
                           input.precision, input.reduce_precision)
            .time.count();
      };
      forward += time(Pass::forward);
      backward += time(Pass::backward);
    }
  }
  return stages;
}

/// All slots in the order of their starts.
class ListSchedule {
 public:
  ListSchedule(const std::vector<Stage>& stages, std::int32_t micro_batches, std::int32_t under_way)
      : stages_(stages),
        micro_batches_(micro_batches),
        under_way_(under_way),
        ends_(2 * stages.size() * static_cast<std::size_t>(micro_batches), -1.0),
        next_(2 * stages.size(), 0),
        starts_(2 * stages.size(), -1.0),
        touched_(stages.size()) {
    for (std::size_t s = 0; s < stages.size(); ++s) {
      touched_[s].insert(static_cast<std::int32_t>(s));
      for (const auto* others : {&stages[s].reads, &stages[s].read_by})
        touched_[s].insert(others->begin(), others->end());
      for (std::size_t o = 0; o < stages.size(); ++o) {
        if (share_a_device(stages[s], stages[o])) touched_[s].insert(static_cast<std::int32_t>(o));
      }
    }
  }

  std::vector<Slot> run() {
    std::vector<Slot> order;
    for (std::size_t s = 0; s < stages_.size(); ++s) renew(static_cast<std::int32_t>(s));
    while (true) {
      // The earliest start; backward before forward, then the later stage.
      std::size_t chosen = starts_.size();
      for (std::size_t s = stages_.size(); s-- > 0;) {
        for (const Direction direction : {Direction::backward, Direction::forward}) {
          const std::size_t i = index(static_cast<std::int32_t>(s), direction);
          if (starts_[i] < 0) continue;
          const bool better = chosen == starts_.size() || starts_[i] < starts_[chosen] ||
                              (starts_[i] == starts_[chosen] && direction == Direction::backward &&
                               chosen % 2 == 0);
          if (better) chosen = i;
        }
      }
      if (chosen == starts_.size()) break;
      order.push_back(schedule_slot(chosen));
    }
    ensure(order.size() == ends_.size(), "a list schedule reaches every slot");
    return order;
  }

 private:
  static bool share_a_device(const Stage& a, const Stage& b) {
    return std::any_of(a.forward.begin(), a.forward.end(),
                       [&](const auto& entry) { return b.forward.contains(entry.first); });
  }
  static std::size_t index(std::int32_t stage, Direction direction) {
    return 2 * static_cast<std::size_t>(stage) + (direction == Direction::backward ? 1 : 0);
  }
  double& end(std::size_t index, std::int32_t micro_batch) {
    return ends_[index * static_cast<std::size_t>(micro_batches_) +
                 static_cast<std::size_t>(micro_batch)];
  }

  /// When the next slots of a stage could start; negative: not yet known, or not allowed.
  void renew(std::int32_t s) {
    const Stage& stage = stages_[static_cast<std::size_t>(s)];
    for (const Direction direction : {Direction::forward, Direction::backward}) {
      const std::size_t i = index(s, direction);
      const std::int32_t m = next_[i];
      double latest = 0;
      const auto wait = [&](std::int32_t other, Direction of) {
        const double until = end(index(other, of), m);
        latest = until < 0 || latest < 0 ? -1.0 : std::max(latest, until);
      };
      starts_[i] = -1;
      if (m == micro_batches_) continue;
      if (direction == Direction::forward) {
        if (m - next_[i + 1] >= under_way_) continue;
        for (const std::int32_t other : stage.reads) wait(other, Direction::forward);
      } else {
        wait(s, Direction::forward);
        for (const std::int32_t other : stage.read_by) wait(other, Direction::backward);
      }
      if (latest < 0) continue;
      for (const auto& [device, time] : stage.times(direction))
        latest = std::max(latest, free_[device]);
      starts_[i] = latest;
    }
  }

  Slot schedule_slot(std::size_t chosen) {
    const auto s = static_cast<std::int32_t>(chosen / 2);
    const Direction direction = chosen % 2 == 1 ? Direction::backward : Direction::forward;
    const double start = starts_[chosen];
    double last = start;
    for (const auto& [device, time] : stages_[chosen / 2].times(direction)) {
      double& until = free_[device];
      until = std::max(until, start) + time;
      last = std::max(last, until);
    }
    const Slot slot{s, next_[chosen]++, direction};
    end(chosen, slot.micro_batch) = last;
    for (const std::int32_t other : touched_[chosen / 2]) renew(other);
    return slot;
  }

  const std::vector<Stage>& stages_;
  std::int32_t micro_batches_, under_way_;
  std::vector<double> ends_;        ///< by stage, direction, micro-batch; negative: not placed yet
  std::vector<std::int32_t> next_;  ///< by stage and direction: the next micro-batch
  std::vector<double> starts_;      ///< by stage and direction: of the next slot
  std::vector<std::set<std::int32_t>> touched_;  ///< by stage: whose starts its slots change
  std::map<DeviceId, double> free_;
};

/// Micro-batches between their first forward and their last backward slot at a time.
std::int32_t most_under_way(PipelineSchedule schedule, std::int32_t micro_batches,
                            std::size_t devices) {
  switch (schedule) {
    case PipelineSchedule::gpipe:
      return micro_batches;
    case PipelineSchedule::one_f_one_b:
    case PipelineSchedule::zero_bubble:
    case PipelineSchedule::zero_bubble_h2:  // its stages keep backward whole
      return static_cast<std::int32_t>(std::max<std::size_t>(2, devices));
  }
  throw BrokenInvariant("a pipeline schedule outside its enum");
}

}  // namespace

Schedule pipelined(const StrategyInput& input, const std::vector<LayerPlan>& layers,
                   std::int32_t micro_batches) {
  std::set<DeviceId> used;
  for (const LayerPlan& layer : layers) used.insert(layer.devices.begin(), layer.devices.end());
  Schedule schedule;
  schedule.blocking_sends = input.pipeline_sends == PipelineSends::blocking;
  schedule.reduce_every = input.reduce_every;
  schedule.micro_batches = micro_batches;
  schedule.stage_of_layer.assign(layers.size(), 0);
  if (micro_batches == 1) {
    schedule.rank_lists = {
        {{used.begin(), used.end()}, {{0, 0, Direction::forward}, {0, 0, Direction::backward}}}};
    return schedule;
  }
  schedule.stage_of_layer = stages_of(input.network, layers);
  const std::vector<Stage> stages =
      described(input, layers, schedule.stage_of_layer, input.batch / micro_batches);
  const std::int32_t under_way =
      most_under_way(input.schedule_or_default(), micro_batches, used.size());
  const std::vector<Slot> order = ListSchedule(stages, micro_batches, under_way).run();
  for (const DeviceId device : used) {
    RankList list{{device}, {}};
    for (const Slot& slot : order) {
      if (stages[static_cast<std::size_t>(slot.stage)].forward.contains(device))
        list.slots.push_back(slot);
    }
    schedule.rank_lists.push_back(std::move(list));
  }
  return schedule;
}

}  // namespace parsim::strategies::hypergraph
