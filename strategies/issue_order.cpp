#include "strategies/issue_order.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/errors.hpp"

namespace parsim {

namespace {

/// Which stages a stage reads, and which read it.
struct Neighbours {
  std::set<std::int32_t> before, after;
};

std::vector<Neighbours> neighbours(const Network& network, const std::vector<std::int32_t>& stage) {
  std::vector<Neighbours> all(
      static_cast<std::size_t>(*std::max_element(stage.begin(), stage.end())) + 1);
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    for (const LayerId input : network.layers[l].inputs) {
      const std::int32_t from = stage[input.index()], to = stage[l];
      if (from == to) continue;
      all[static_cast<std::size_t>(to)].before.insert(from);
      all[static_cast<std::size_t>(from)].after.insert(to);
    }
  }
  return all;
}

void refuse_unknown_stages(const Schedule& schedule, std::size_t stages) {
  for (const Lane& lane : schedule.lanes) {
    for (const Slot& slot : lane.slots) {
      if (slot.stage >= 0 && static_cast<std::size_t>(slot.stage) < stages) continue;
      throw InputError("plan: schedule", fmt::format("a slot of stage {}", slot.stage),
                       fmt::format("0 to {}: the last stage with a layer", stages - 1));
    }
  }
}

bool can_run(const Slot& slot, const std::set<Slot>& done, const Neighbours& stage) {
  const auto ran = [&](std::int32_t other, Direction direction) {
    return done.contains({other, slot.micro_batch, direction});
  };
  if (slot.direction == Direction::forward) {
    return std::all_of(stage.before.begin(), stage.before.end(),
                       [&](std::int32_t s) { return ran(s, Direction::forward); });
  }
  return ran(slot.stage, Direction::forward) &&
         std::all_of(stage.after.begin(), stage.after.end(),
                     [&](std::int32_t s) { return ran(s, Direction::backward); });
}

}  // namespace

std::vector<Slot> issue_order(const Network& network, const Schedule& schedule) {
  const std::vector<Neighbours> stages = neighbours(network, schedule.stage_of_layer);
  refuse_unknown_stages(schedule, stages.size());
  const std::vector<Lane>& lanes = schedule.lanes;
  std::vector<Slot> order;
  std::set<Slot> done;
  std::vector<std::size_t> next(lanes.size(), 0);
  for (bool progress = true; progress;) {
    progress = false;
    std::set<Slot> issued;
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      if (next[lane] == lanes[lane].slots.size()) continue;
      const Slot slot = lanes[lane].slots[next[lane]];
      if (!issued.contains(slot)) {
        const bool turn = std::all_of(lanes.begin(), lanes.end(), [&](const Lane& other) {
          const std::size_t n = next[static_cast<std::size_t>(&other - lanes.data())];
          const bool has = std::find(other.slots.begin() + static_cast<std::ptrdiff_t>(n),
                                     other.slots.end(), slot) != other.slots.end();
          return !has || other.slots[n] == slot;
        });
        if (!turn || !can_run(slot, done, stages[static_cast<std::size_t>(slot.stage)])) continue;
        order.push_back(slot);
        issued.insert(slot);
      }
      progress = true;
    }
    for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
      if (next[lane] < lanes[lane].slots.size() && issued.contains(lanes[lane].slots[next[lane]]))
        ++next[lane];
    }
    done.insert(issued.begin(), issued.end());
  }
  for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
    if (next[lane] == lanes[lane].slots.size()) continue;
    const Slot slot = lanes[lane].slots[next[lane]];
    throw InputError("plan: schedule",
                     fmt::format("lane {} waits for ever at {} of stage {}, micro-batch {}", lane,
                                 slot.direction == Direction::forward ? "forward" : "backward",
                                 slot.stage, slot.micro_batch),
                     "an order in which every slot comes after the slots it depends on");
  }
  return order;
}

}  // namespace parsim
