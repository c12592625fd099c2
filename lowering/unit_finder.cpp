#include "lowering/unit_finder.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "core/dag_traffic.hpp"
#include "core/hash.hpp"
#include "lowering/unit_ways.hpp"

namespace parsim::lowering {

namespace {

constexpr std::size_t most_lists = 256;

/// Whether the layer computes every sample alone, in parts by sample that each have as many
/// devices.
bool by_sample(const LayerPlan& layer) {
  return !layer.cuts.empty() && layer.cuts[0].dim == Dim::sample && !layer.joined &&
         layer.sync.kind != Sync::Kind::server && layer.zero.shares.empty() &&
         layer.zero.group.ranks == 0 &&
         std::none_of(layer.cuts[0].sizes.begin(), layer.cuts[0].sizes.end(),
                      [](std::int64_t size) { return size == 0; });
}

bool shards_by_node(const Plan& plan) {
  return std::any_of(plan.layers.begin(), plan.layers.end(),
                     [](const LayerPlan& layer) { return layer.zero.group.node; });
}

bool shards(const Plan& plan) {
  return std::any_of(plan.layers.begin(), plan.layers.end(),
                     [](const LayerPlan& layer) { return layer.zero.stage > 0; });
}

}  // namespace

bool reduce(const AlikeUnits& units, PricedCommunication& communication) {
  std::erase_if(communication.queues, [&](std::uint32_t queue) {
    const std::uint32_t device = queue / static_cast<std::uint32_t>(queues_per_device);
    return !units.keeps(DeviceId{static_cast<std::int32_t>(device)});
  });
  communication.queues.shrink_to_fit();
  std::vector<LinkLoad> kept;
  kept.reserve(static_cast<std::size_t>(
      std::count_if(communication.loads.begin(), communication.loads.end(),
                    [&](const LinkLoad& load) { return units.keeps_hop(load.hop); })));
  std::size_t of_units = 0, wanted = 0;
  for (const LinkLoad& load : communication.loads) {
    if (units.hop_unit[load.hop] >= 0) ++of_units;
    if (!units.keeps_hop(load.hop)) continue;
    kept.push_back(load);
    if (const std::int32_t unit = units.hop_unit[load.hop]; unit >= 0)
      wanted += units.classes[units.class_of[static_cast<std::size_t>(unit)]].size();
  }
  if (of_units != wanted) return false;
  for (const LinkLoad& load : communication.loads) {
    if (units.keeps_hop(load.hop)) continue;
    const auto same =
        std::lower_bound(kept.begin(), kept.end(), units.hop_origin[load.hop],
                         [](const LinkLoad& one, std::uint32_t hop) { return one.hop < hop; });
    const bool alike = same != kept.end() && same->hop == units.hop_origin[load.hop] &&
                       same->seconds == load.seconds;
    if (!alike) return false;
  }
  communication.loads = std::move(kept);
  return true;
}

UnitFinder::UnitFinder(const Cluster& cluster, const CostModel* cost, std::size_t most_units)
    : cluster_(cluster), cost_(cost), most_units_(most_units), routes_(cluster) {}

bool UnitFinder::find_lists(const Plan& plan) {
  lists_.clear();
  list_of_.clear();
  for (const LayerPlan& layer : plan.layers) {
    if (!by_sample(layer)) return false;
    const auto same = [&](const List& list) {
      return list.cut == layer.cuts[0] && list.devices == layer.devices;
    };
    if (!list_of_.empty() && same(lists_[list_of_.back()])) {
      list_of_.push_back(list_of_.back());
      continue;
    }
    const auto found = std::find_if(lists_.begin(), lists_.end(), same);
    list_of_.push_back(static_cast<std::size_t>(found - lists_.begin()));
    if (found != lists_.end()) continue;
    if (layer.devices.size() % layer.cuts[0].sizes.size() != 0 || lists_.size() == most_lists)
      return false;
    lists_.push_back({layer.cuts[0], layer.devices});
  }
  return !lists_.empty();
}

bool UnitFinder::fold(const Plan& plan, Folded& folded) {
  if (!find_lists(plan)) return false;
  Key key{shards_by_node(plan) ? 1 : 0};
  for (const List& list : lists_) {
    key.insert(key.end(), list.cut.sizes.begin(), list.cut.sizes.end());
    key.push_back(-1);
    for (const DeviceId device : list.devices) key.push_back(device.value);
    key.push_back(-1);
  }
  for (const RankList& ranks : plan.schedule.rank_lists) {
    for (const DeviceId device : ranks.devices) key.push_back(device.value);
    key.push_back(-1);
  }
  auto known = recipes_.find(key);
  if (known == recipes_.end()) {
    constexpr std::size_t most_recipes = 4096;
    if (recipes_.size() == most_recipes) recipes_.clear();
    known = recipes_.emplace(std::move(key), recipe_of(plan, {})).first;
  }
  last_ = &known->second;
  last_shards_ = shards(plan);
  const Recipe& recipe = last_shards_ && last_->if_sharded != nullptr ? *last_->if_sharded : *last_;
  if (recipe.units == nullptr) return false;
  Plan& first = folded.plan;
  folded.units = recipe.units;
  first.batch = 0;
  for (const std::size_t part : recipe.kept[0]) first.batch += lists_[0].cut.sizes[part];
  first.batch *= plan.schedule.micro_batches;
  first.precision = plan.precision;
  first.reduce_precision = plan.reduce_precision;
  first.optimizer = plan.optimizer;
  first.framework = plan.framework;
  first.buckets = plan.buckets;
  first.schedule = plan.schedule;
  for (RankList& ranks : first.schedule.rank_lists) {
    std::erase_if(ranks.devices, [&](DeviceId device) { return !recipe.units->keeps(device); });
  }
  std::vector<List> kept(lists_.size());
  for (std::size_t i = 0; i < kept.size(); ++i) {
    const List& list = lists_[i];
    const std::size_t each = list.devices.size() / list.cut.sizes.size();
    for (const std::size_t part : recipe.kept[i]) {
      kept[i].cut.sizes.push_back(list.cut.sizes[part]);
      for (std::size_t k = 0; k < each; ++k)
        kept[i].devices.push_back(list.devices[part * each + k]);
    }
  }
  first.layers.resize(plan.layers.size());
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    const LayerPlan& layer = plan.layers[l];
    LayerPlan& one = first.layers[l];
    one.zero = layer.zero;
    one.recompute = layer.recompute;
    one.sync = layer.sync;
    one.joined = layer.joined;
    one.regather = layer.regather;
    one.zigzag = layer.zigzag;
    one.ring = layer.ring;
    one.overlap = layer.overlap;
    one.apart = layer.apart;
    one.token_parts = layer.token_parts;
    one.cuts.assign(layer.cuts.size(), {});
    std::copy(layer.cuts.begin() + 1, layer.cuts.end(), one.cuts.begin() + 1);
    one.cuts[0].dim = Dim::sample;
    one.cuts[0].sizes = kept[list_of_[l]].cut.sizes;
    one.devices = kept[list_of_[l]].devices;
  }
  return true;
}

void UnitFinder::refuse(const Plan& plan, std::vector<std::uint64_t> apart) {
  if (!last_shards_) {
    last_->units = nullptr;
    return;
  }
  const Recipe& before = last_->if_sharded != nullptr ? *last_->if_sharded : *last_;
  auto finer = std::make_shared<Recipe>();
  if (!apart.empty()) {
    for (std::size_t d = 0; d < before.apart.size(); ++d)
      apart[d] = hash_combine(before.apart[d], apart[d]);
    static_cast<void>(find_lists(plan));
    *finer = recipe_of(plan, std::move(apart));
    if (finer->units == before.units) finer->units = nullptr;
  }
  last_->if_sharded = std::move(finer);
}

/// Parts of the coarsest list that are next to each other make up a unit.
UnitFinder::Recipe UnitFinder::recipe_of(const Plan& plan, std::vector<std::uint64_t> apart) {
  const List& coarsest = *std::min_element(
      lists_.begin(), lists_.end(),
      [](const List& a, const List& b) { return a.cut.sizes.size() < b.cut.sizes.size(); });
  const std::vector<std::int64_t>& sizes = coarsest.cut.sizes;
  for (std::size_t count = std::min(sizes.size(), most_units_); count > 1; --count) {
    if (sizes.size() % count != 0) continue;
    const std::size_t each = sizes.size() / count;
    std::vector<std::int64_t> ends;  // of units, in samples
    for (std::size_t part = 0; part < sizes.size(); ++part) {
      if (part % each == 0) ends.push_back(ends.empty() ? 0 : ends.back());
      ends.back() += sizes[part];
    }
    if (auto recipe = in_units(ends, plan, apart)) {
      recipe->apart = std::move(apart);
      return *std::move(recipe);
    }
  }
  return {};
}

std::optional<UnitFinder::Recipe> UnitFinder::in_units(const std::vector<std::int64_t>& ends,
                                                       const Plan& plan,
                                                       const std::vector<std::uint64_t>& apart) {
  const std::size_t count = ends.size();
  // By unit: its devices, and its parts of each list, from one number to another.
  std::vector<std::vector<DeviceId>> devices(count);
  std::vector<std::vector<std::size_t>> begins;
  for (const List& list : lists_) {
    const std::size_t each = list.devices.size() / list.cut.sizes.size();
    std::vector<std::size_t>& begin = begins.emplace_back();
    std::int64_t end = 0;
    for (std::size_t part = 0, unit = 0; part < list.cut.sizes.size(); ++part) {
      if (part == 0 || end == ends[unit]) {
        if (part > 0) ++unit;
        begin.push_back(part);
      }
      end += list.cut.sizes[part];
      if (end > ends[unit]) return std::nullopt;
      const auto first = list.devices.begin() + static_cast<std::ptrdiff_t>(part * each);
      devices[unit].insert(devices[unit].end(), first, first + static_cast<std::ptrdiff_t>(each));
    }
    begin.push_back(list.cut.sizes.size());
  }
  std::vector<std::int32_t> position(cluster_.devices.size(), -1), ranks_of(position);
  std::map<NodeId, std::size_t> node_unit;
  const bool by_node = shards_by_node(plan);  // ZeRO groups must be within units
  for (std::size_t u = 0; u < count; ++u) {
    std::sort(devices[u].begin(), devices[u].end());
    devices[u].erase(std::unique(devices[u].begin(), devices[u].end()), devices[u].end());
    for (std::size_t p = 0; p < devices[u].size(); ++p) {
      std::int32_t& own = position[devices[u][p].index()];
      if (own >= 0) return std::nullopt;  // of another unit, too
      own = static_cast<std::int32_t>(p);
      if (by_node && node_unit.try_emplace(cluster_[devices[u][p]].node, u).first->second != u)
        return std::nullopt;
    }
  }
  for (std::size_t r = 0; r < plan.schedule.rank_lists.size(); ++r) {
    for (const DeviceId device : plan.schedule.rank_lists[r].devices)
      ranks_of[device.index()] = static_cast<std::int32_t>(r);
  }
  // Alike are units whose parts have as many samples, on devices that are alike, at the same
  // positions: in another order they would form other rings.
  std::map<Key, std::size_t> known;
  std::vector<std::size_t> alike;  // by unit: number of its key
  Key key;
  for (std::size_t u = 0; u < count; ++u) {
    key.clear();
    for (const DeviceId device : devices[u]) {
      key.push_back(cluster_[device].model);
      if (cost_ != nullptr) key.push_back(cost_->alike(device));
      if (!apart.empty()) key.push_back(static_cast<std::int64_t>(apart[device.index()]));
      key.push_back(ranks_of[device.index()]);
    }
    for (std::size_t l = 0; l < lists_.size(); ++l) {
      const List& list = lists_[l];
      const std::size_t each = list.devices.size() / list.cut.sizes.size();
      key.push_back(-1);
      for (std::size_t part = begins[l][u]; part < begins[l][u + 1]; ++part) {
        key.push_back(list.cut.sizes[part]);
        for (std::size_t k = 0; k < each; ++k)
          key.push_back(position[list.devices[part * each + k].index()]);
      }
    }
    alike.push_back(known.try_emplace(key, known.size()).first->second);
  }
  const bool again = most_units_ < std::numeric_limits<std::size_t>::max();
  constexpr std::size_t most_ways = 1 << 21;  // all are found and remembered
  if (again && devices[0].size() * devices[0].size() > most_ways / count) return std::nullopt;
  if (known.size() == count) return std::nullopt;
  Recipe recipe;
  recipe.units = units_of(std::move(devices), alike);
  if (recipe.units == nullptr) return std::nullopt;
  if (again && !nexts_alike(*recipe.units)) return std::nullopt;
  for (const std::vector<std::size_t>& begin : begins) {
    std::vector<std::size_t>& kept = recipe.kept.emplace_back();
    for (std::size_t u = 0; u < count; ++u) {
      if (recipe.units->kept_of(u) != u) continue;
      for (std::size_t part = begin[u]; part < begin[u + 1]; ++part) kept.push_back(part);
    }
  }
  return recipe;
}

/// Rings of gradients go from unit to unit. Machines of which some share leaf switches with their
/// next and some do not are no units; those of a whole leaf switch may be.
bool UnitFinder::nexts_alike(const AlikeUnits& units) {
  const auto same = [&](std::size_t unit, std::size_t from) {
    const auto way = [&](std::size_t u) -> std::vector<Hop> {
      return routes_.between(units.devices[u][from], units.devices[(u + 1) % units.count()][0])
          .hops;
    };
    const std::vector<Hop> own = way(units.kept_of(unit)), other = way(unit);
    return std::equal(own.begin(), own.end(), other.begin(), other.end(), [&](Hop a, Hop b) {
      return cluster_[a.link].rate == cluster_[b.link].rate &&
             cluster_[a.link].latency == cluster_[b.link].latency;
    });
  };
  for (std::size_t u = 0; u < units.count(); ++u) {
    if (units.kept_of(u) == u) continue;
    if (!same(u, 0) || !same(u, units.devices[u].size() - 1)) return false;
  }
  return true;
}

const AlikeUnits* UnitFinder::units_of(std::vector<std::vector<DeviceId>> devices,
                                       const std::vector<std::size_t>& alike) {
  const auto [at, fresh] = known_.try_emplace({devices, alike});
  if (!fresh) return at->second.get();
  AlikeUnits units;
  if (cost_ == nullptr) {
    units = AlikeUnits(std::move(devices), alike, cluster_.devices.size());
  } else {
    std::optional<std::vector<std::size_t>> classes = by_ways(devices, alike);
    if (!classes) return nullptr;
    units = AlikeUnits(std::move(devices), *std::move(classes), cluster_.devices.size());
    if (units.classes.size() == units.count() || !find_hops(units)) return nullptr;
  }
  units.number = static_cast<std::int32_t>(known_.size());
  at->second = std::make_unique<AlikeUnits>(std::move(units));
  return at->second.get();
}

/// Classes of units that are alike and whose ways are; nothing if these are many.
std::optional<std::vector<std::size_t>> UnitFinder::by_ways(
    const std::vector<std::vector<DeviceId>>& devices, const std::vector<std::size_t>& alike) {
  constexpr std::size_t most_ways_each = 8;
  std::vector<std::vector<std::size_t>> kept;  // units, by number in `alike`
  std::vector<std::size_t> classes, class_of_kept(devices.size());
  std::map<std::size_t, UnitWays> ways;  // of kept units
  std::size_t count = 0;
  for (std::size_t u = 0; u < devices.size(); ++u) {
    if (alike[u] >= kept.size()) kept.resize(alike[u] + 1);
    std::vector<std::size_t>& known = kept[alike[u]];
    UnitWays own(cluster_, routes_, devices[u]);
    const auto like = std::find_if(known.begin(), known.end(),
                                   [&](std::size_t one) { return ways.at(one).alike(own); });
    if (like != known.end()) {
      classes.push_back(class_of_kept[*like]);
    } else {
      if (known.size() == most_ways_each) return std::nullopt;
      known.push_back(u);
      ways.try_emplace(u, std::move(own));
      class_of_kept[u] = count++;
      classes.push_back(class_of_kept[u]);
    }
  }
  return classes;
}

bool UnitFinder::find_hops(AlikeUnits& units) {
  const std::size_t hops = 2 * cluster_.links.size();
  units.hop_unit.assign(hops, -1);
  units.hop_origin.assign(hops, 0);
  std::map<std::size_t, UnitWays> ways;  // of kept units
  for (std::size_t u = 0; u < units.count(); ++u) {
    UnitWays own(cluster_, routes_, units.devices[u]);
    const auto see = [&](Hop hop, Hop of_kept) {
      std::int32_t& unit = units.hop_unit[hop.index()];
      std::uint32_t& origin = units.hop_origin[hop.index()];
      const auto wanted = static_cast<std::uint32_t>(of_kept.index());
      if (unit >= 0) return unit == static_cast<std::int32_t>(u) && origin == wanted;
      unit = static_cast<std::int32_t>(u);
      origin = wanted;
      return true;
    };
    if (!own.visit_hops(units.kept_of(u) == u ? own : ways.at(units.kept_of(u)), see)) return false;
    if (units.kept_of(u) == u) ways.try_emplace(u, std::move(own));
  }
  return true;
}

}  // namespace parsim::lowering
