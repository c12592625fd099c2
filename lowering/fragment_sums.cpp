// The fragments that sum: partial results of a layer, and gradients of parameters.
#include <algorithm>

#include "core/hash.hpp"
#include "lowering/fragments.hpp"
#include "lowering/unit_finder.hpp"

namespace parsim::lowering {

namespace {

/// By device of a sum, the box of it that `needs` ask for; nothing unless these are disjoint and
/// make up all of it.
std::vector<Region> shares_of(const LayerFragment::Sum& sum, std::span<const Need> needs) {
  std::vector<Region> shares(sum.devices.size());
  for (const Need& need : needs) {
    const auto at = std::lower_bound(sum.devices.begin(), sum.devices.end(), need.device);
    if (at == sum.devices.end() || *at != need.device || need.region.empty()) continue;
    const Region wanted = intersect(need.region, sum.region);
    if (wanted.empty()) continue;
    Region& share = shares[static_cast<std::size_t>(at - sum.devices.begin())];
    share = hull(share, wanted);
  }
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < shares.size(); ++i) {
    if (shares[i].rank() == 0) return {};
    elements += shares[i].volume();
    for (std::size_t j = 0; j < i; ++j) {
      if (!intersect(shares[i], shares[j]).empty()) return {};
    }
  }
  return elements == sum.region.volume() ? shares : std::vector<Region>{};
}

}  // namespace

std::vector<FanOut::PartsSum> Fragments::make_parts_sums(const LayerFragment& home,
                                                         std::span<const Need> needs,
                                                         std::vector<Cell>& cells) const {
  std::vector<FanOut::PartsSum> sums;
  for (const LayerFragment::Sum& sum : home.sums) {
    FanOut::PartsSum& one = sums.emplace_back();
    const bool one_cell_each = sum.devices.size() == sum.cells.size();
    if (sum.devices.size() > 1 && one_cell_each) one.shares = shares_of(sum, needs);
    for (std::size_t i = 0; i < one.shares.size(); ++i) {
      for (const std::int32_t c : sum.cells) {
        Cell& cell = cells[static_cast<std::size_t>(c)];
        if (cell.device == sum.devices[i]) cell.part.out = one.shares[i];
      }
    }
    if (!one.shares.empty() && !home.chunks.empty()) scatter_chunks(home, sum, one);
    if (pricer_ == nullptr) continue;
    std::int64_t elements = sum.statistics.empty() ? sum.region.volume() : 0;
    for (const Region& given : sum.statistics) elements += given.volume();
    const Bytes payload{elements * element_};
    const CollectiveKind kind = kind_of(sum, one);
    one.price = sum.devices.size() == 1 ? pricer_->communications.local(sum.devices[0], 2 * payload)
                                        : pricer_->communications.ring(kind, sum.devices, payload);
  }
  return sums;
}

void Fragments::give_statistics(LayerId loss, LayerFragment& fragment) const {
  LayerFragment::Sum& sum = fragment.sums.back();
  const auto device = [&](std::int32_t cell) {
    return fragment.devices[static_cast<std::size_t>(cell)];
  };
  std::stable_sort(sum.cells.begin(), sum.cells.end(),
                   [&](auto a, auto b) { return device(a) < device(b); });
  const Shape& scores = network_[network_[loss].inputs[0]].out;
  const Part& part = fragment.cells[static_cast<std::size_t>(sum.cells[0])].part;
  for (auto begin = sum.cells.begin(); begin != sum.cells.end();) {
    const auto end =
        std::find_if(begin, sum.cells.end(), [&](auto c) { return device(c) != device(*begin); });
    sum.statistics.push_back(
        loss_statistics(scores, part, {begin - sum.cells.begin(), end - sum.cells.begin()}));
    begin = end;
  }
}

const std::vector<SumFragment>* Fragments::sums(const std::vector<ParameterId>& bucket,
                                                const std::vector<std::int32_t>& numbers,
                                                const AlikeUnits* units) {
  Key key{units == nullptr ? -1 : units->number};
  for (const ParameterId id : bucket) {
    key.push_back(id.value);
    for (const LayerId user : structure_.users[id.index()]) key.push_back(numbers[user.index()]);
  }
  auto found = sums_.find(key);
  if (found == sums_.end()) {
    count_made();
    found = sums_.emplace(std::move(key), make_sums(bucket, numbers, units)).first;
  }
  return found->second ? &*found->second : nullptr;
}

namespace {

std::int64_t elements_of(const SyncGroup& group) {
  std::int64_t elements = 0;
  for (const auto& [parameter, region] : group.contents) elements += region.volume();
  return elements;
}

/// Whether devices of a group of all units have as many elements of its states as the kept ones
/// that they are like.
bool shares_alike(const SyncGroup& whole, const AlikeUnits& units) {
  if (whole.zero_stage == 0) return true;
  return std::all_of(whole.devices.begin(), whole.devices.end(), [&](DeviceId device) {
    return whole.shard_of(device) == whole.shard_of(units.kept(device));
  });
}

/// What the split of a group's states and its prices depend on.
std::vector<std::int64_t> sum_key(const AlikeUnits* units, const SyncGroup& group,
                                  const ZeroGroup& how) {
  std::vector<std::int64_t> key{units == nullptr ? -1 : units->number,
                                static_cast<std::int64_t>(group.sync.kind),
                                group.sync.server.value,
                                group.zero_stage,
                                how.ranks,
                                how.node ? 1 : 0,
                                elements_of(group)};
  for (const std::vector<DeviceId>* list : {&group.devices, &group.mirrors}) {
    key.push_back(std::ssize(*list));
    for (const DeviceId device : *list) key.push_back(device.value);
  }
  key.insert(key.end(), group.shards.begin(), group.shards.end());
  for (const std::vector<DeviceId>& part : group.apart) {
    key.push_back(-std::ssize(part));
    for (const DeviceId device : part) key.push_back(device.value);
  }
  return key;
}

/// Leaves the kept units' devices in a group, now `whole`, of all units. False if a ZeRO group is
/// within no unit.
bool reduce(const SyncGroup& whole, const AlikeUnits& units, SyncGroup& group) {
  if (group.served() || !group.mirrors.empty()) return false;
  const auto elsewhere = [&](DeviceId device) { return !units.keeps(device); };
  std::erase_if(group.devices, elsewhere);
  // What is summed over parts that are apart is within one unit.
  const auto within = [&](std::size_t ranks) {
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::vector<DeviceId> holders = whole.holders_of(rank);
      const auto others = std::count_if(holders.begin(), holders.end(), elsewhere);
      if (others != 0 && others != std::ssize(holders)) return false;
    }
    return true;
  };
  if (whole.zero_stage == 0) return !whole.sums_apart() || within(whole.apart[0].size());
  group.seats.clear();
  for (const DeviceId device : group.devices)
    group.seats.push_back(whole.seats[whole.index_of(device)]);
  if (!whole.summed_twice) {
    std::erase_if(group.zero_groups[0], elsewhere);
    return true;
  }
  if (!whole.apart.empty()) {
    if (!within(whole.shards.size())) return false;  // each ZeRO group is of all units
    for (std::vector<DeviceId>& members : group.zero_groups) std::erase_if(members, elsewhere);
    return std::none_of(group.zero_groups.begin(), group.zero_groups.end(),
                        [](const std::vector<DeviceId>& members) { return members.empty(); });
  }
  std::vector<std::size_t> kept(whole.zero_groups.size());
  group.zero_groups.clear();
  for (std::size_t g = 0; g < whole.zero_groups.size(); ++g) {
    const std::vector<DeviceId>& members = whole.zero_groups[g];
    const auto others = std::count_if(members.begin(), members.end(), elsewhere);
    if (others != 0 && others != std::ssize(members)) return false;  // within no unit
    kept[g] = group.zero_groups.size();
    if (others == 0) group.zero_groups.push_back(members);
  }
  for (SyncGroup::Seat& seat : group.seats) seat.zero_group = kept[seat.zero_group];
  return true;
}

}  // namespace

bool Fragments::split_over_units(const AlikeUnits& units, const ZeroGroup& how, const SumKey& key,
                                 SumFragment& sum, SyncGroup& group) {
  auto found = splits_.find(key);
  if (found == splits_.end()) {
    SyncGroup whole = group;
    whole.devices = units.everywhere(group.devices);
    for (std::vector<DeviceId>& part : whole.apart) part = units.everywhere(part);
    split_states(network_, cluster_, how, whole);
    whole.contents.clear();
    whole.layers.clear();
    Split split{nullptr, whole};
    if (!shares_alike(whole, units)) {
      tell_apart(whole);
    } else if (reduce(whole, units, split.kept)) {
      split.whole = std::make_shared<const SyncGroup>(std::move(whole));
    }
    found = splits_.emplace(key, std::move(split)).first;
  }
  const Split& split = found->second;
  if (split.whole == nullptr) return false;
  sum.of_all_units = split.whole;
  SyncGroup kept = split.kept;
  kept.contents = std::move(group.contents);
  kept.layers = std::move(group.layers);
  group = std::move(kept);
  return true;
}

void Fragments::tell_apart(const SyncGroup& whole) {
  apart_.resize(cluster_.devices.size());
  for (const DeviceId device : whole.devices) {
    std::uint64_t& number = apart_[device.index()];
    number = hash_combine(number, whole.shard_of(device));
  }
}

std::optional<std::vector<SumFragment>> Fragments::make_sums(
    const std::vector<ParameterId>& bucket, const std::vector<std::int32_t>& numbers,
    const AlikeUnits* units) {
  std::vector<UnsplitGroup> groups = bucket_groups(
      network_, bucket, structure_.users,
      [&](LayerId user) -> std::span<const Cell> {
        return layer(user, numbers[user.index()]).cells;
      },
      [&](LayerId user) -> const LayerPlan& { return layer(user, numbers[user.index()]).plan; });
  // Searches keep hundreds of thousands: none has room for more than it holds.
  std::vector<SumFragment> all;
  all.reserve(groups.size());
  for (auto& [group, how] : groups) {
    SumFragment& sum = all.emplace_back();
    SumKey key = sum_key(units, group, how);
    if (units == nullptr) split_states(network_, cluster_, how, group);
    if (units != nullptr && !split_over_units(*units, how, key, sum, group)) return std::nullopt;
    group.contents.shrink_to_fit();
    sum.holders.reserve(group.devices.size() + group.mirrors.size());
    sum.holders = group.devices;
    sum.holders.insert(sum.holders.end(), group.mirrors.begin(), group.mirrors.end());
    for (const DeviceId mirror : group.mirrors) {
      const auto near = std::find_if(
          group.devices.begin(), group.devices.end(),
          [&](DeviceId device) { return cluster_[device].node == cluster_[mirror].node; });
      sum.mirror_source.push_back(near == group.devices.end()
                                      ? std::size_t{0}
                                      : static_cast<std::size_t>(near - group.devices.begin()));
    }
    std::map<DeviceId, std::vector<SumFragment::AwaitedKernel>> kernels;
    for (const LayerId user : group.layers) {
      const std::vector<DeviceId>& cells = layer(user, numbers[user.index()]).devices;
      for (std::size_t c = 0; c < cells.size(); ++c)
        kernels[cells[c]].push_back({user, static_cast<std::int32_t>(c)});
    }
    sum.kernels.reserve(sum.holders.size());
    for (const DeviceId device : sum.holders) {
      sum.kernels.push_back(std::move(kernels[device]));
      sum.kernels.back().shrink_to_fit();
    }
    sum.group = std::move(group);
    if (pricer_ == nullptr) continue;
    key.push_back(pricer_->weights.elements(sum.group.contents));
    const auto [entry, fresh] = sum_prices_.try_emplace(std::move(key));
    if (fresh) entry->second = price(sum, units);
    if (entry->second == nullptr) return std::nullopt;
    sum.prices = entry->second;
  }
  return all;
}

std::shared_ptr<const SumFragment::Prices> Fragments::price(const SumFragment& sum,
                                                            const AlikeUnits* units) const {
  const SyncGroup &group = sum.group, &whole = sum.whole();
  SumFragment::Prices prices;
  const auto priced = [&] {
    return std::make_shared<const SumFragment::Prices>(std::move(prices));
  };
  const StepInput& input = pricer_->input;
  CommunicationPricer& communications = pricer_->communications;
  const std::int64_t elements = elements_of(group);
  const Bytes weights{elements * element_};
  const std::int64_t gradient = element_bytes(input.reduce_precision);
  const Bytes gradients{elements * gradient};
  const auto memory = [&](DeviceId device, Bytes touched) {
    return input.cost.memory(device, touched).time.count();
  };
  const std::int64_t cast = pricer_->weights.elements(group.contents);
  const auto update = [&](DeviceId device, std::int64_t part) {
    return input.cost
        .update(device, {part, input.optimizer, input.precision, input.reduce_precision, cast})
        .time.count();
  };
  if (group.served()) {
    for (const DeviceId device : group.devices)
      prices.pushes.push_back(communications.transfer(device, group.sync.server, gradients));
    for (const DeviceId device : sum.holders)
      prices.pulls.push_back(communications.transfer(group.sync.server, device, weights));
    prices.updates.push_back(update(group.sync.server, elements));
    return priced();
  }
  bool alike = true;
  const auto ring = [&](CollectiveKind kind, const std::vector<DeviceId>& members, Bytes payload) {
    PricedCommunication price = communications.ring(kind, members, payload);
    if (units != nullptr) alike = reduce(*units, price) && alike;
    return price;
  };
  const bool sharded = group.zero_stage > 0;
  const bool by_parts = whole.sums_apart();
  if (!sharded && !by_parts) {
    prices.sums = {ring(CollectiveKind::all_reduce, whole.devices, gradients)};
  }
  for (std::size_t p = 0; by_parts && p < whole.apart.size(); ++p) {
    prices.sums.push_back(ring(CollectiveKind::all_reduce, whole.apart[p], gradients));
  }
  // ZeRO groups are within units, or of all of them.
  const bool within_units = whole.summed_twice && whole.apart.empty();
  const std::vector<std::vector<DeviceId>>& zero_groups =
      within_units ? group.zero_groups : whole.zero_groups;
  if (sharded) prices.sums.reserve(zero_groups.size());
  prices.gathers.reserve(zero_groups.size());
  const std::size_t ranks = by_parts             ? whole.apart[0].size()
                            : whole.summed_twice ? group.shards.size()
                                                 : 0;
  prices.replica_sums.reserve(ranks);
  for (const std::vector<DeviceId>& members : zero_groups) {
    const auto within = [&](CollectiveKind kind, Bytes payload) {
      return within_units ? communications.ring(kind, members, payload)
                          : ring(kind, members, payload);
    };
    prices.sums.push_back(within(CollectiveKind::reduce_scatter, gradients));
    prices.gathers.push_back(within(CollectiveKind::all_gather, weights));
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    const Bytes payload = by_parts ? gradients : Bytes{group.summed_elements(rank) * gradient};
    if (whole.apart.empty()) {
      prices.replica_sums.push_back(
          ring(CollectiveKind::all_reduce, whole.holders_of(rank), payload));
      continue;
    }
    prices.replica_sums.push_back(
        communications.ring(CollectiveKind::all_reduce, whole.holders_of(rank), payload));
  }
  // Their rings may differ between units that are alike in all else.
  for (std::size_t rank = 0;
       units != nullptr && !whole.apart.empty() && rank < prices.replica_sums.size(); ++rank) {
    const DeviceId kept = units->kept(whole.holders_of(rank).front());
    const std::vector<DeviceId>& first = by_parts ? whole.apart[0] : whole.zero_groups[0];
    const auto like = std::lower_bound(first.begin(), first.end(), kept);
    alike = alike && like != first.end() && *like == kept &&
            prices.replica_sums[rank].seconds ==
                prices.replica_sums[static_cast<std::size_t>(like - first.begin())].seconds;
  }
  for (std::size_t d = 0; d < group.mirrors.size(); ++d) {
    prices.to_mirror.push_back(
        communications.transfer(group.devices[sum.mirror_source[d]], group.mirrors[d], gradients));
  }
  prices.updates.reserve(sum.holders.size());
  prices.copies.reserve(sum.holders.size());
  for (std::size_t d = 0; d < sum.holders.size(); ++d) {
    const std::int64_t part = sharded ? group.shards[group.seats[d].rank] : elements;
    prices.updates.push_back(update(sum.holders[d], part));
    prices.copies.push_back(sharded ? memory(sum.holders[d], Bytes{2 * part * gradient}) : 0);
  }
  return alike ? priced() : nullptr;
}

}  // namespace parsim::lowering
