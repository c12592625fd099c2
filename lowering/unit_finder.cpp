#include "lowering/unit_finder.hpp"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "core/dag_traffic.hpp"

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
  const std::vector<std::int32_t>& hop_unit = units.hop_unit;
  std::erase_if(communication.queues, [&](std::uint32_t queue) {
    return units.unit_of[queue / static_cast<std::uint32_t>(queues_per_device)] != 0;
  });
  std::vector<LinkLoad> kept;
  std::size_t of_units = 0;
  for (const LinkLoad& load : communication.loads) {
    if (hop_unit[load.hop] <= 0) kept.push_back(load);
    if (hop_unit[load.hop] >= 0) ++of_units;
  }
  std::size_t of_first = 0;
  for (const LinkLoad& load : kept) {
    if (hop_unit[load.hop] == 0) ++of_first;
  }
  if (of_units != of_first * units.count()) return false;
  for (const LinkLoad& load : communication.loads) {
    if (hop_unit[load.hop] <= 0) continue;
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

bool UnitFinder::alike(DeviceId a, DeviceId b) const {
  if (cluster_[a].model != cluster_[b].model) return false;
  return cost_ == nullptr || cost_->alike(a) == cost_->alike(b);
}

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
    known = recipes_.emplace(std::move(key), recipe_of(plan)).first;
  }
  Recipe& recipe = known->second;
  last_ = &recipe;
  last_shards_ = shards(plan);
  if (recipe.units == nullptr || (recipe.whole_if_sharded && last_shards_)) return false;
  const auto count = static_cast<std::int64_t>(recipe.units->count());
  Plan& first = folded.plan;
  folded.units = recipe.units;
  first.batch = plan.batch / count;
  first.precision = plan.precision;
  first.reduce_precision = plan.reduce_precision;
  first.optimizer = plan.optimizer;
  first.buckets = plan.buckets;
  first.schedule = plan.schedule;
  for (RankList& ranks : first.schedule.rank_lists) {
    std::erase_if(ranks.devices,
                  [&](DeviceId device) { return recipe.units->unit_of[device.index()] != 0; });
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
    one.cuts.assign(layer.cuts.size(), {});
    std::copy(layer.cuts.begin() + 1, layer.cuts.end(), one.cuts.begin() + 1);
    one.cuts[0].dim = Dim::sample;
    one.devices.clear();
    const std::size_t each = layer.devices.size() / layer.cuts[0].sizes.size();
    for (const std::size_t part : recipe.kept[list_of_[l]]) {
      one.cuts[0].sizes.push_back(layer.cuts[0].sizes[part]);
      const auto begin = layer.devices.begin() + static_cast<std::ptrdiff_t>(part * each);
      one.devices.insert(one.devices.end(), begin, begin + static_cast<std::ptrdiff_t>(each));
    }
  }
  return true;
}

void UnitFinder::refuse() {
  if (last_shards_) last_->whole_if_sharded = true;
  if (!last_shards_) last_->units = nullptr;
}

/// Parts of the coarsest list that are alike and next to each other are divided among the units.
UnitFinder::Recipe UnitFinder::recipe_of(const Plan& plan) {
  const List& coarsest = *std::min_element(
      lists_.begin(), lists_.end(),
      [](const List& a, const List& b) { return a.cut.sizes.size() < b.cut.sizes.size(); });
  const std::vector<std::int64_t>& sizes = coarsest.cut.sizes;
  const std::size_t each = coarsest.devices.size() / sizes.size();
  const auto same = [&](std::size_t a, std::size_t b) {
    bool equal = sizes[a] == sizes[b];
    for (std::size_t k = 0; k < each && equal; ++k)
      equal = alike(coarsest.devices[a * each + k], coarsest.devices[b * each + k]);
    return equal;
  };
  std::vector<std::int64_t> borders{0};  // between runs of parts that are alike, in samples
  std::size_t most = 0;
  for (std::size_t begin = 0, end = 0; begin < sizes.size(); begin = end) {
    std::int64_t border = borders.back();
    for (; end < sizes.size() && same(begin, end); ++end) border += sizes[end];
    borders.push_back(border);
    most = std::gcd(most, end - begin);
  }
  for (std::size_t count = std::min(most, most_units_); count > 1; --count) {
    if (most % count != 0) continue;
    if (auto recipe = in_units(static_cast<std::int64_t>(count), borders, plan)) {
      return *std::move(recipe);
    }
  }
  return {};
}

std::optional<UnitFinder::Recipe> UnitFinder::in_units(std::int64_t count,
                                                       const std::vector<std::int64_t>& borders,
                                                       const Plan& plan) {
  const bool by_node = shards_by_node(plan);  // ZeRO groups must be within units
  const auto units = static_cast<std::size_t>(count);
  Recipe recipe;
  std::map<DeviceId, std::vector<DeviceId>> images;  // by device of the first unit: by unit
  std::vector<std::int32_t> unit_of(cluster_.devices.size(), -1);
  for (const List& list : lists_) {
    const std::size_t each = list.devices.size() / list.cut.sizes.size();
    std::vector<std::vector<std::size_t>> parts(units);
    std::int64_t begin = 0;
    std::size_t run = 0;
    for (std::size_t part = 0; part < list.cut.sizes.size(); ++part) {
      const std::int64_t end = begin + list.cut.sizes[part];
      while (begin >= borders[run + 1]) ++run;
      const std::int64_t step = (borders[run + 1] - borders[run]) / count;
      const std::int64_t unit = (begin - borders[run]) / step;
      if (end > borders[run] + (unit + 1) * step) return std::nullopt;
      parts[static_cast<std::size_t>(unit)].push_back(part);
      begin = end;
    }
    for (std::size_t u = 0; u < units; ++u) {
      if (parts[u].size() != parts[0].size()) return std::nullopt;
      for (std::size_t i = 0; i < parts[0].size(); ++i) {
        if (list.cut.sizes[parts[u][i]] != list.cut.sizes[parts[0][i]]) return std::nullopt;
        for (std::size_t k = 0; k < each; ++k) {
          const DeviceId first = list.devices[parts[0][i] * each + k];
          const DeviceId image = list.devices[parts[u][i] * each + k];
          std::vector<DeviceId>& all = images[first];
          all.resize(units);
          if (all[u].valid() && all[u] != image) return std::nullopt;
          all[u] = image;
          std::int32_t& own = unit_of[image.index()];
          if (own >= 0 && own != static_cast<std::int32_t>(u)) return std::nullopt;
          own = static_cast<std::int32_t>(u);
          if (!alike(first, image)) return std::nullopt;
        }
      }
    }
    recipe.kept.push_back(std::move(parts[0]));
  }
  std::vector<std::int32_t> ranks_of(cluster_.devices.size(), -1);
  for (std::size_t r = 0; r < plan.schedule.rank_lists.size(); ++r) {
    for (const DeviceId device : plan.schedule.rank_lists[r].devices)
      ranks_of[device.index()] = static_cast<std::int32_t>(r);
  }
  std::vector<std::vector<DeviceId>> devices(units);
  std::map<NodeId, std::size_t> node_unit;
  for (const auto& [first, all] : images) {
    for (std::size_t u = 0; u < units; ++u) {
      if (ranks_of[all[u].index()] != ranks_of[first.index()]) return std::nullopt;
      // In another order they would form other rings.
      if (!devices[u].empty() && all[u] <= devices[u].back()) return std::nullopt;
      devices[u].push_back(all[u]);
      const auto [node, fresh] = node_unit.try_emplace(cluster_[all[u]].node, u);
      if (by_node && node->second != u) return std::nullopt;
    }
  }
  const bool again = most_units_ < std::numeric_limits<std::size_t>::max();
  constexpr std::size_t most_ways = 1 << 21;  // all are found and remembered
  if (again && devices[0].size() * devices[0].size() > most_ways / units) return std::nullopt;
  recipe.units = units_of(std::move(devices));
  if (recipe.units == nullptr) return std::nullopt;
  if (again && !nexts_alike(*recipe.units)) return std::nullopt;
  return recipe;
}

/// Rings of gradients go from unit to unit. Machines of which some share leaf switches with their
/// next and some do not are no units; those of a whole leaf switch may be.
bool UnitFinder::nexts_alike(const AlikeUnits& units) {
  const std::vector<DeviceId>& first = units.devices[0];
  const auto same = [&](std::size_t unit, std::size_t from, std::size_t to) {
    const auto way = [&](std::size_t u) -> std::vector<Hop> {
      const std::vector<DeviceId>& next = units.devices[(u + 1) % units.count()];
      return routes_.between(units.devices[u][from], next[to]).hops;
    };
    const std::vector<Hop> own = way(0), other = way(unit);
    return std::equal(own.begin(), own.end(), other.begin(), other.end(), [&](Hop a, Hop b) {
      return cluster_[a.link].rate == cluster_[b.link].rate &&
             cluster_[a.link].latency == cluster_[b.link].latency;
    });
  };
  for (std::size_t u = 1; u < units.count(); ++u) {
    if (!same(u, 0, 0) || !same(u, first.size() - 1, 0)) return false;
  }
  return true;
}

const AlikeUnits* UnitFinder::units_of(std::vector<std::vector<DeviceId>> devices) {
  const auto [at, fresh] = known_.try_emplace(devices);
  if (!fresh) return at->second.get();
  AlikeUnits units(std::move(devices), cluster_.devices.size());
  units.number = static_cast<std::int32_t>(known_.size());
  if (cost_ == nullptr || find_hops(units))
    at->second = std::make_unique<AlikeUnits>(std::move(units));
  return at->second.get();
}

bool UnitFinder::find_hops(AlikeUnits& units) {
  const std::size_t hops = 2 * cluster_.links.size();
  const std::vector<DeviceId>& first = units.devices[0];
  units.hop_unit.assign(hops, -1);
  units.hop_origin.assign(hops, 0);
  const auto same_node = [&](DeviceId a, DeviceId b) {
    return cluster_[a].node == cluster_[b].node;
  };
  for (std::size_t u = 0; u < units.count(); ++u) {
    for (std::size_t i = 0; i < first.size(); ++i) {
      for (std::size_t j = 0; j < first.size(); ++j) {
        if (i == j) continue;
        const DeviceId from = units.devices[u][i], to = units.devices[u][j];
        if (same_node(from, to) != same_node(first[i], first[j])) return false;
        const std::vector<Hop> own = routes_.between(first[i], first[j]).hops;
        const std::vector<Hop>& way = routes_.between(from, to).hops;
        if (way.size() != own.size()) return false;
        for (std::size_t h = 0; h < way.size(); ++h) {
          const Link &link = cluster_[way[h].link], &like = cluster_[own[h].link];
          if (link.rate != like.rate || link.latency != like.latency) return false;
          std::int32_t& unit = units.hop_unit[way[h].index()];
          std::uint32_t& origin = units.hop_origin[way[h].index()];
          const auto wanted = static_cast<std::uint32_t>(own[h].index());
          if (unit < 0) {
            unit = static_cast<std::int32_t>(u);
            origin = wanted;
          } else if (unit != static_cast<std::int32_t>(u) || origin != wanted) {
            return false;
          }
        }
      }
    }
  }
  return true;
}

}  // namespace parsim::lowering
