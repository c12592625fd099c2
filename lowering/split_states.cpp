#include "lowering/split_states.hpp"

#include <algorithm>
#include <functional>
#include <map>

namespace parsim {

namespace {

struct InMemory {
  std::size_t unit = 0;
  std::size_t free_from = 0;  ///< the turn after its last use so far
};

}  // namespace

UnitsByTurn units_by_turn(std::span<const Turn> turns, const std::vector<SyncGroup>& groups,
                          std::span<const std::size_t> units) {
  std::map<LayerId, std::vector<std::size_t>> of_layer;
  for (const std::size_t unit : units) {
    for (const LayerId id : groups[unit].layers) of_layer[id].push_back(unit);
  }
  UnitsByTurn used;
  for (const Turn& turn : turns) {
    const auto found = of_layer.find(turn.layer);
    used.push_back(found == of_layer.end() ? std::vector<std::size_t>{} : found->second);
  }
  return used;
}

UnitsByTurn filled_by_turn(std::span<const Turn> turns, const std::vector<SyncGroup>& groups,
                           std::span<const std::size_t> units) {
  UnitsByTurn filled = units_by_turn(turns, groups, units);
  for (std::size_t t = 0; t < turns.size(); ++t) {
    if (turns[t].forward) filled[t].clear();
  }
  return filled;
}

std::vector<std::vector<std::size_t>> split_together(const std::vector<SyncGroup>& groups,
                                                     std::int32_t zero_stage) {
  std::vector<std::vector<std::size_t>> together;
  std::map<std::vector<DeviceId>, std::size_t> place;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].zero_stage < zero_stage) continue;
    const auto [at, fresh] = place.try_emplace(groups[g].devices, together.size());
    if (fresh) together.emplace_back();
    together[at->second].push_back(g);
  }
  return together;
}

bool scatters_each_micro_batch(const Schedule& schedule) {
  const std::vector<std::int32_t>& stages = schedule.stage_of_layer;
  return schedule.micro_batches == 1 ||
         std::adjacent_find(stages.begin(), stages.end(), std::not_equal_to<>()) == stages.end();
}

std::vector<WeightGather> weight_gathers(const UnitsByTurn& needs,
                                         std::vector<std::size_t>& there) {
  constexpr std::size_t usual = 2;
  std::vector<InMemory> memory;  // least recently used first
  for (const std::size_t unit : there) memory.push_back({unit, 0});
  std::vector<WeightGather> gathers;
  for (std::size_t turn = 0; turn < needs.size(); ++turn) {
    const std::vector<std::size_t>& wanted = needs[turn];
    const std::size_t room = std::max(usual, wanted.size());
    for (const std::size_t unit : wanted) {
      const auto found = std::find_if(memory.begin(), memory.end(),
                                      [&](const InMemory& held) { return held.unit == unit; });
      if (found != memory.end()) {
        memory.erase(found);
      } else {
        WeightGather gather{gathers.empty() ? 0 : gathers.back().turn, unit, {}};
        while (memory.size() >= room) {
          const auto idle = std::find_if(memory.begin(), memory.end(), [&](const InMemory& held) {
            return std::find(wanted.begin(), wanted.end(), held.unit) == wanted.end();
          });
          gather.turn = std::max(gather.turn, idle->free_from);
          gather.instead.push_back(idle->unit);
          memory.erase(idle);
        }
        gathers.push_back(std::move(gather));
      }
      memory.push_back({unit, turn + 1});
    }
  }
  there.clear();
  for (const InMemory& held : memory) there.push_back(held.unit);
  return gathers;
}

std::int64_t most_gathered(const UnitsByTurn& forward, const UnitsByTurn& backward,
                           const std::vector<std::int64_t>& bytes) {
  std::vector<std::size_t> there;
  std::int64_t now = 0, most = 0;
  for (const UnitsByTurn* needs : {&forward, &backward}) {
    for (const WeightGather& gather : weight_gathers(*needs, there)) {
      for (const std::size_t unit : gather.instead) now -= bytes[unit];
      now += bytes[gather.unit];
      most = std::max(most, now);
    }
  }
  return most;
}

namespace {

/// When a unit's gradients are made.
struct Filling {
  std::size_t unit = 0, first = 0, last = 0;  ///< turns
};
std::vector<Filling> fillings(const UnitsByTurn& filled) {
  std::vector<Filling> all;
  std::map<std::size_t, std::size_t> place;
  for (std::size_t turn = 0; turn < filled.size(); ++turn) {
    for (const std::size_t unit : filled[turn]) {
      const auto [at, fresh] = place.try_emplace(unit, all.size());
      if (fresh) all.push_back({unit, turn, turn});
      all[at->second].last = turn;
    }
  }
  return all;
}

}  // namespace

std::vector<GradientRoom> gradient_rooms(const UnitsByTurn& filled) {
  const std::vector<Filling> all = fillings(filled);
  std::vector<GradientRoom> rooms;
  for (std::size_t k = 2; k < all.size(); ++k) {
    if (all[k - 2].last < all[k].first) {
      rooms.push_back({all[k].first, all[k].unit, all[k - 2].unit});
    }
  }
  return rooms;
}

std::int64_t most_filled(const UnitsByTurn& filled, const std::vector<std::int64_t>& bytes) {
  const std::vector<Filling> all = fillings(filled);
  std::int64_t most = 0;
  for (std::size_t k = 0; k < all.size(); ++k) {
    std::int64_t now = bytes[all[k].unit] + (k > 0 ? bytes[all[k - 1].unit] : 0);
    for (std::size_t j = 0; j + 1 < k; ++j) {
      const bool awaited = all[j].last < all[j + 2].first;
      if (!awaited) now += bytes[all[j].unit];
    }
    most = std::max(most, now);
  }
  return most;
}

}  // namespace parsim
