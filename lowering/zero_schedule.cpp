#include "lowering/zero_schedule.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

namespace parsim::lowering {

namespace {

struct InMemory {
  std::size_t unit = 0;
  std::size_t used_from = 0;  ///< the first of the visits in a row that last used it
  std::size_t free_from = 0;  ///< the visit after them
};

}  // namespace

UnitsByLayer units_by_layer(const std::vector<SyncGroup>& groups,
                            std::span<const std::size_t> units) {
  UnitsByLayer of_layer;
  for (const std::size_t unit : units) {
    for (const LayerId id : groups[unit].layers) {
      if (id.index() >= of_layer.size()) of_layer.resize(id.index() + 1);
      of_layer[id.index()].push_back(unit);
    }
  }
  return of_layer;
}

UnitsByVisit units_by_visit(std::span<const LayerVisit> visits, const UnitsByLayer& units) {
  UnitsByVisit used(visits.size());
  for (std::size_t t = 0; t < visits.size(); ++t) {
    const std::size_t layer = visits[t].layer.index();
    if (layer < units.size()) used[t] = units[layer];
  }
  return used;
}

UnitsByVisit filled_by_visit(std::span<const LayerVisit> visits, const UnitsByLayer& units) {
  UnitsByVisit filled = units_by_visit(visits, units);
  for (std::size_t t = 0; t < visits.size(); ++t) {
    if (visits[t].forward) filled[t].clear();
  }
  return filled;
}

std::vector<std::vector<std::size_t>> groups_by_devices(const std::vector<SyncGroup>& groups,
                                                        std::int32_t zero_stage) {
  std::vector<std::vector<std::size_t>> lists;
  std::map<std::vector<DeviceId>, std::size_t> list_of;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (groups[g].zero_stage < zero_stage) continue;
    const auto [at, fresh] = list_of.try_emplace(groups[g].devices, lists.size());
    if (fresh) lists.emplace_back();
    lists[at->second].push_back(g);
  }
  return lists;
}

bool has_stages(const Schedule& schedule) {
  const std::vector<std::int32_t>& stages = schedule.stage_of_layer;
  return std::adjacent_find(stages.begin(), stages.end(), std::not_equal_to<>()) != stages.end();
}

bool scatters_each_micro_batch(const Schedule& schedule) {
  if (schedule.split_backward) return false;
  if (schedule.micro_batches == 1) return true;
  return schedule.reduce_every != ReduceEvery::step && !has_stages(schedule);
}

bool gathers_before_forward(const SyncGroup& group, const Schedule& schedule) {
  if (schedule.reduce_every == ReduceEvery::automatic) return false;
  const bool accumulates = group.zero_stage == 1 && schedule.reduce_every == ReduceEvery::step;
  if (group.zero_stage != 2 && !accumulates) return false;
  if (!has_stages(schedule)) return !schedule.split_backward;
  const auto stage = [&](LayerId id) { return schedule.stage_of_layer[id.index()]; };
  return std::all_of(group.layers.begin(), group.layers.end(),
                     [&](LayerId id) { return stage(id) == stage(group.layers[0]); });
}

bool sums_each_micro_batch(const Schedule& schedule) {
  return schedule.reduce_every == ReduceEvery::micro_batch && schedule.micro_batches > 1 &&
         scatters_each_micro_batch(schedule);
}

namespace {

/// From the visit after one use to the next use.
struct Gap {
  std::size_t first = 0, end = 0;
};

/// Whether a pass uses the unit at both ends.
bool at_both_ends(const UnitsByVisit& needs, std::size_t unit) {
  const auto uses = [](const std::vector<std::size_t>& visit) { return !visit.empty(); };
  const auto first = std::find_if(needs.begin(), needs.end(), uses);
  const auto last = std::find_if(needs.rbegin(), needs.rend(), uses);
  const auto has = [&](const std::vector<std::size_t>& visit) {
    return std::find(visit.begin(), visit.end(), unit) != visit.end();
  };
  return first != needs.end() && has(*first) && has(*last);
}

/// By unit: between which uses it stays.
std::map<std::size_t, std::vector<Gap>> kept_between(const UnitsByVisit& needs,
                                                     const std::vector<std::int64_t>& elements) {
  constexpr std::int64_t most = 1'000'000'000;
  std::map<std::size_t, std::vector<Gap>> kept;
  std::map<std::size_t, std::size_t> used;  // the visit after the last use so far
  std::set<std::size_t> others;
  for (std::size_t visit = 0; visit < needs.size(); ++visit) {
    for (const std::size_t unit : needs[visit]) {
      const auto [last, fresh] = used.try_emplace(unit, visit + 1);
      const std::size_t first = std::exchange(last->second, visit + 1);
      if (fresh || first == visit) continue;
      others.clear();
      std::int64_t between = 0;
      for (std::size_t at = first; at < visit && between <= most; ++at) {
        for (const std::size_t other : needs[at]) {
          if (others.insert(other).second) between += elements[other];
        }
      }
      if (between <= most || at_both_ends(needs, unit)) kept[unit].push_back({first, visit});
    }
  }
  return kept;
}

}  // namespace

std::vector<WeightGather> weight_gathers(const UnitsByVisit& needs,
                                         const std::vector<std::int64_t>& elements,
                                         std::vector<std::size_t>& resident, bool late) {
  constexpr std::size_t usual = 2;
  const std::map<std::size_t, std::vector<Gap>> kept = kept_between(needs, elements);
  std::vector<InMemory> memory;  // least recently used first
  for (const std::size_t unit : resident) memory.push_back({unit, 0, 0});
  std::vector<WeightGather> gathers;
  for (std::size_t visit = 0; visit < needs.size(); ++visit) {
    const std::vector<std::size_t>& wanted = needs[visit];
    const std::size_t limit = std::max(usual, wanted.size());
    const auto is_wanted = [&](const InMemory& held) {
      return std::find(wanted.begin(), wanted.end(), held.unit) != wanted.end();
    };
    const auto stays = [&](const InMemory& held) {
      const auto gaps = kept.find(held.unit);
      return gaps != kept.end() &&
             std::any_of(gaps->second.begin(), gaps->second.end(),
                         [&](const Gap& gap) { return gap.first <= visit && visit < gap.end; });
    };
    for (const std::size_t unit : wanted) {
      const auto found = std::find_if(memory.begin(), memory.end(),
                                      [&](const InMemory& held) { return held.unit == unit; });
      InMemory now{unit, visit, visit + 1};
      if (found != memory.end()) {
        if (found->free_from == visit) now.used_from = found->used_from;
        memory.erase(found);
      } else {
        WeightGather gather{gathers.empty() ? 0 : gathers.back().visit, unit, {}};
        const auto staying = std::count_if(memory.begin(), memory.end(), stays);
        while (memory.size() >= limit + static_cast<std::size_t>(staying)) {
          const auto idle = std::find_if(memory.begin(), memory.end(), [&](const InMemory& held) {
            return !is_wanted(held) && !stays(held);
          });
          gather.visit = std::max(gather.visit, idle->free_from);
          gather.evicted.push_back(idle->unit);
          memory.erase(idle);
        }
        // Only one unit is prefetched also where none is evicted.
        for (const InMemory& held : memory) {
          if (!is_wanted(held)) gather.visit = std::max(gather.visit, held.used_from);
        }
        if (late) gather.visit = visit;
        gathers.push_back(std::move(gather));
      }
      memory.push_back(now);
    }
  }
  resident.clear();
  for (const InMemory& held : memory) resident.push_back(held.unit);
  return gathers;
}

std::vector<std::size_t> freed_after(bool keeps_last, std::vector<std::size_t>& resident) {
  const auto kept = resident.end() - (keeps_last && !resident.empty() ? 1 : 0);
  std::vector<std::size_t> freed(resident.begin(), kept);
  resident.erase(resident.begin(), kept);
  return freed;
}

std::vector<std::int64_t> elements_of(const std::vector<SyncGroup>& groups) {
  std::vector<std::int64_t> elements;
  for (const SyncGroup& group : groups) {
    std::int64_t& sum = elements.emplace_back(0);
    for (const auto& [parameter, region] : group.contents) sum += region.volume();
  }
  return elements;
}

std::int64_t most_gathered(const UnitsByVisit& forward, const UnitsByVisit& backward,
                           const std::vector<std::int64_t>& elements,
                           const std::vector<std::int64_t>& bytes) {
  std::vector<std::size_t> resident;
  std::int64_t now = 0, most = 0;
  for (const UnitsByVisit* needs : {&forward, &backward}) {
    for (const WeightGather& gather : weight_gathers(*needs, elements, resident)) {
      for (const std::size_t unit : gather.evicted) now -= bytes[unit];
      now += bytes[gather.unit];
      most = std::max(most, now);
    }
    for (const std::size_t unit : freed_after(needs == &forward, resident)) now -= bytes[unit];
  }
  return most;
}

namespace {

/// When a unit's gradients are made.
struct Filling {
  std::size_t unit = 0, first = 0, last = 0;  ///< visits
};
std::vector<Filling> fillings(const UnitsByVisit& filled) {
  std::vector<Filling> all;
  std::map<std::size_t, std::size_t> index_of;
  for (std::size_t visit = 0; visit < filled.size(); ++visit) {
    for (const std::size_t unit : filled[visit]) {
      const auto [at, fresh] = index_of.try_emplace(unit, all.size());
      if (fresh) all.push_back({unit, visit, visit});
      all[at->second].last = visit;
    }
  }
  return all;
}

}  // namespace

std::vector<GradientBufferReuse> gradient_buffer_reuses(const UnitsByVisit& filled) {
  const std::vector<Filling> all = fillings(filled);
  std::vector<GradientBufferReuse> reuses;
  for (std::size_t k = 2; k < all.size(); ++k) {
    if (all[k - 2].last < all[k].first) {
      reuses.push_back({all[k].first, all[k].unit, all[k - 2].unit});
    }
  }
  return reuses;
}

std::int64_t most_filled(const UnitsByVisit& filled, const std::vector<std::int64_t>& bytes) {
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

}  // namespace parsim::lowering
