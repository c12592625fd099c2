#include "lowering/sync.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "core/errors.hpp"
#include "lowering/zero_schedule.hpp"

namespace parsim::lowering {

namespace {

/// One use of a part of a parameter.
struct Use {
  Region region;
  DeviceId device;
  std::int64_t replica = 0;
  LayerId layer;
};

/// Those of one parameter.
struct Uses {
  std::vector<Use> all;
  /// Only the first replica has contributions to all of it: layers or their groups of devices
  /// differ in the number of replicas.
  bool first_only = false;
};

/// Cuts regions that overlap (tied weights split differently) into equal or disjoint pieces.
std::vector<std::vector<Region>> atoms(const std::vector<Region>& regions) {
  std::vector<std::vector<Region>> pieces;
  if (std::all_of(regions.begin(), regions.end(), [&](const auto& r) { return r == regions[0]; }))
    return std::vector(regions.size(), std::vector(regions.begin(), regions.begin() + 1));
  std::vector<std::set<std::int64_t>> borders(regions.empty() ? 0 : regions[0].rank());
  for (const Region& region : regions) {
    for (std::size_t a = 0; a < borders.size(); ++a)
      borders[a].insert({region[a].begin, region[a].end});
  }
  for (const Region& region : regions) {
    std::vector<Region> parts{region};
    for (std::size_t a = 0; a < borders.size(); ++a) {
      std::vector<Region> finer;
      for (const Region& part : parts) {
        auto at = borders[a].upper_bound(part[a].begin);
        Region rest = part;
        for (; at != borders[a].end() && *at < part[a].end; ++at) {
          Region first = rest;
          first[a].end = *at;
          rest[a].begin = *at;
          finer.push_back(first);
        }
        finer.push_back(rest);
      }
      parts = std::move(finer);
    }
    pieces.push_back(std::move(parts));
  }
  return pieces;
}

/// Devices that hold each piece of a parameter, by replica.
using Holders = std::map<std::pair<std::int64_t, Region>, std::vector<DeviceId>>;

Holders holders(const std::vector<Use>& uses) {
  std::vector<Region> regions;
  for (const Use& use : uses) regions.push_back(use.region);
  const std::vector<std::vector<Region>> pieces = atoms(regions);
  Holders result;
  for (std::size_t u = 0; u < uses.size(); ++u) {
    for (const Region& piece : pieces[u])
      result[{uses[u].replica, piece}].push_back(uses[u].device);
  }
  for (auto& [key, devices] : result) {
    std::sort(devices.begin(), devices.end());
    devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
  }
  return result;
}

/// A piece whose gradients are summed over `devices`; mirrors as at SyncGroup.
struct ParameterSum {
  Region piece;
  std::vector<DeviceId> devices, mirrors;
};

std::string named(const Network& network, ParameterId id) {
  return fmt::format("parameter '{}'", network[id].name);
}

/// The first replica sums, all others get its sum.
std::vector<ParameterSum> sums_of_first(const Holders& all, const Sync& sync,
                                        const Network& network, ParameterId id) {
  std::map<Region, ParameterSum> by_piece;
  for (const auto& [key, devices] : all) {
    ParameterSum& sum = by_piece[key.second];
    std::vector<DeviceId>& list = key.first == 0 ? sum.devices : sum.mirrors;
    list.insert(list.end(), devices.begin(), devices.end());
  }
  std::vector<ParameterSum> result;
  for (auto& [piece, sum] : by_piece) {
    ensure(!sum.devices.empty(), "the first replica has every piece");
    sum.piece = piece;
    std::erase_if(sum.mirrors, [&](DeviceId device) {
      return std::binary_search(sum.devices.begin(), sum.devices.end(), device);
    });
    std::sort(sum.mirrors.begin(), sum.mirrors.end());
    if (sync.kind == Sync::Kind::server &&
        std::binary_search(sum.mirrors.begin(), sum.mirrors.end(), sync.server)) {
      throw InputError(named(network, id),
                       "a parameter server that is a further replica of groups of other size",
                       "a server that is no such device");
    }
    result.push_back(std::move(sum));
  }
  return result;
}

/// Every replica sums for itself. But a server has one store for a piece: of several replicas only
/// one sends it gradients, the server's own if it has one (its contributions are in that store
/// already), else the first.
std::vector<ParameterSum> sums(const Uses& uses, const Sync& sync, const Network& network,
                               ParameterId id) {
  const Use& first = uses.all[0];
  const bool alike = std::all_of(uses.all.begin(), uses.all.end(), [&](const Use& use) {
    return use.replica == 0 && use.region == first.region;
  });
  if (alike) {  // most are: what follows would find the same
    ParameterSum sum{first.region, {}, {}};
    for (const Use& use : uses.all) sum.devices.push_back(use.device);
    std::sort(sum.devices.begin(), sum.devices.end());
    sum.devices.erase(std::unique(sum.devices.begin(), sum.devices.end()), sum.devices.end());
    return {std::move(sum)};
  }
  const Holders all = holders(uses.all);
  if (uses.first_only) return sums_of_first(all, sync, network, id);
  std::map<Region, std::vector<const std::vector<DeviceId>*>> replicas_of;
  for (const auto& [key, devices] : all) replicas_of[key.second].push_back(&devices);
  std::vector<ParameterSum> result;
  for (const auto& [key, devices] : all) {
    const auto& replicas = replicas_of[key.second];
    const bool alone = std::all_of(replicas.begin(), replicas.end(),
                                   [](const auto* members) { return members->size() == 1; });
    ParameterSum sum{key.second, devices, {}};
    if (sync.kind == Sync::Kind::server && !alone) {
      const auto own = std::find_if(replicas.begin(), replicas.end(), [&](const auto* members) {
        return std::binary_search(members->begin(), members->end(), sync.server);
      });
      const auto* sender = own == replicas.end() ? replicas[0] : *own;
      if (sender != &devices) continue;
      for (const auto* members : replicas) {
        if (members != sender)
          sum.mirrors.insert(sum.mirrors.end(), members->begin(), members->end());
      }
    }
    result.push_back(std::move(sum));
  }
  return result;
}

/// Those of the devices that have a parameter for the same layers; empty if all have.
std::vector<std::vector<DeviceId>> apart(const Uses& uses, std::span<const DeviceId> devices) {
  std::map<DeviceId, std::set<LayerId>> layers_of;
  for (const Use& use : uses.all) layers_of[use.device].insert(use.layer);
  std::map<std::set<LayerId>, std::vector<DeviceId>> parts;
  for (const DeviceId device : devices) parts[layers_of[device]].push_back(device);
  std::vector<std::vector<DeviceId>> result;
  if (parts.size() < 2) return result;
  for (auto& [layers, part] : parts) result.push_back(std::move(part));
  std::sort(result.begin(), result.end());
  return result;
}

/// What a cell's device has of a parameter: what the cell reads, or all tokens of a learned tensor.
Region held_region(const Layer& layer, std::span<const Shape> inputs, const LayerPlan& plan,
                   std::size_t parameter, const Cell& cell) {
  Region region = parameter_region(layer.kind, inputs, layer.out, parameter, cell.part);
  const std::size_t tokens = layer.out.region_axis(Dim::token);
  if (plan.token_parts > 0 && tokens > 0) region[tokens - 1] = {0, layer.out.extent(Dim::token)};
  return region;
}

/// What the cells of the layers that have a parameter use of it.
Uses uses_of(const Network& network, ParameterId id, std::span<const LayerId> users,
             const std::function<std::span<const Cell>(LayerId)>& cells_of,
             const std::function<const LayerPlan&(LayerId)>& plan_of) {
  Uses uses;
  std::int32_t replicas = 0;  // of the layers so far
  const bool several = std::any_of(users.begin(), users.end(), [&](LayerId user) {
    const std::span<const Cell> cells = cells_of(user);
    return std::any_of(cells.begin(), cells.end(), [](const Cell& c) { return c.replica != 0; });
  });
  std::map<DeviceId, std::int64_t> replica_of;
  for (const LayerId user : users) {
    const Layer& layer = network[user];
    const std::vector<Shape> inputs = input_shapes(network, user);
    for (std::size_t p = 0; p < layer.parameters.size(); ++p) {
      if (layer.parameters[p] != id) continue;
      std::int32_t own = 0;
      for (const Cell& cell : cells_of(user)) own = std::max(own, cell.replica + cell.replicas);
      uses.first_only |= replicas > 0 && own != replicas;
      replicas = own;
      for (const Cell& cell : cells_of(user)) {
        const Region region = held_region(layer, inputs, plan_of(user), p, cell);
        if (region.empty()) continue;
        uses.all.push_back({region, cell.device, cell.replica, user});
        uses.first_only |= cell.replicas > 1;
        if (!several ||
            replica_of.try_emplace(cell.device, cell.replica).first->second == cell.replica)
          continue;
        throw InputError(named(network, id), "layers that share it are replicated differently",
                         "the same devices for the same replica");
      }
    }
  }
  return uses;
}

}  // namespace

std::size_t SyncGroup::find(DeviceId device) const {
  const auto at = std::lower_bound(devices.begin(), devices.end(), device);
  const bool member = at != devices.end() && *at == device;
  return member ? static_cast<std::size_t>(at - devices.begin()) : devices.size();
}

std::size_t SyncGroup::index_of(DeviceId device) const {
  const std::size_t index = find(device);
  ensure(index < devices.size(), "only members have a share");
  return index;
}

std::vector<DeviceId> SyncGroup::holders_of(std::size_t rank) const {
  std::vector<DeviceId> holders;
  for (const std::vector<DeviceId>& members : sums_apart() ? apart : zero_groups)
    holders.push_back(members[rank]);
  return holders;
}

std::vector<std::vector<DeviceId>> zero_groups(std::span<const DeviceId> devices,
                                               const ZeroGroup& how, const Cluster& cluster) {
  std::vector<std::vector<DeviceId>> groups;
  if (how.node) {
    std::map<NodeId, std::size_t> group_of;
    for (const DeviceId device : devices) {
      const auto [at, fresh] = group_of.try_emplace(cluster[device].node, groups.size());
      if (fresh) groups.emplace_back();
      groups[at->second].push_back(device);
    }
    const bool alike = std::all_of(groups.begin(), groups.end(), [&](const auto& group) {
      return group.size() == groups[0].size();
    });
    return alike ? groups : std::vector<std::vector<DeviceId>>{};
  }
  const std::size_t ranks = how.ranks == 0 ? devices.size() : static_cast<std::size_t>(how.ranks);
  if (devices.size() % ranks != 0) return groups;
  for (std::size_t d = 0; d < devices.size(); d += ranks) {
    const auto members = devices.subspan(d, ranks);
    groups.emplace_back(members.begin(), members.end());
  }
  return groups;
}

ZeroGroupRefusal zero_group_refusal(std::span<const DeviceId> devices, const ZeroGroup& how,
                                    const Cluster& cluster) {
  if (!how.node) {
    return {fmt::format("groups of {} among {} devices that sum its gradient", how.ranks,
                        devices.size()),
            fmt::format("a number that divides {}, or node", devices.size())};
  }
  std::map<NodeId, std::size_t> devices_of;
  for (const DeviceId device : devices) ++devices_of[cluster[device].node];
  std::set<std::size_t> sizes;
  for (const auto& [node, count] : devices_of) sizes.insert(count);
  return {
      fmt::format("machines with {} of the {} devices that sum its gradient",
                  fmt::join(sizes, " and "), devices.size()),
      fmt::format("a number that divides {}, or as many devices on every machine", devices.size())};
}

std::int32_t zero_stage_of(const SyncGroup& group, const Schedule& schedule) {
  const auto stage = [&](LayerId id) { return schedule.stage_of_layer[id.index()]; };
  const bool across = std::any_of(group.layers.begin(), group.layers.end(),
                                  [&](LayerId id) { return stage(id) != stage(group.layers[0]); });
  if (group.zero_stage == 1 && sums_each_micro_batch(schedule)) return 2;
  return across ? std::min(group.zero_stage, 2) : group.zero_stage;
}

std::vector<std::vector<LayerId>> users_of_parameters(const Network& network) {
  std::vector<std::vector<LayerId>> users(network.parameters.size());
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    for (const ParameterId id : network.layers[l].parameters) {
      std::vector<LayerId>& list = users[id.index()];
      if (list.empty() || list.back() != LayerId{l}) list.emplace_back(l);
    }
  }
  return users;
}

std::vector<std::vector<ParameterId>> bucket_order(const Network& network, const Plan& plan) {
  std::vector<std::vector<ParameterId>> order = plan.buckets;
  std::vector<bool> bucketed(network.parameters.size(), false);
  for (const auto& bucket : plan.buckets) {
    for (const ParameterId id : bucket) bucketed[id.index()] = true;
  }
  for (std::size_t p = network.parameters.size(); p-- > 0;) {
    if (!bucketed[p]) order.push_back({ParameterId{p}});
  }
  return order;
}

namespace {

/// Groups that split states, all alike, within each part; else none.
std::vector<std::vector<DeviceId>> groups_within(const std::vector<std::vector<DeviceId>>& parts,
                                                 const ZeroGroup& how, const Cluster& cluster) {
  std::vector<std::vector<DeviceId>> all;
  for (const std::vector<DeviceId>& part : parts) {
    const std::vector<std::vector<DeviceId>> groups = zero_groups(part, how, cluster);
    if (groups.empty()) return {};
    all.insert(all.end(), groups.begin(), groups.end());
  }
  const bool alike = std::all_of(all.begin(), all.end(), [&](const std::vector<DeviceId>& group) {
    return group.size() == all[0].size();
  });
  return alike ? all : std::vector<std::vector<DeviceId>>{};
}

}  // namespace

/// From relative shares to elements; nothing is split on one device.
void split_states(const Network& network, const Cluster& cluster, const ZeroGroup& how,
                  SyncGroup& group) {
  group.summing = group.devices.size();
  const auto where = [&] { return named(network, group.contents[0].first); };
  const bool alone = group.devices.size() == 1 || !group.mirrors.empty();
  if (alone || group.served()) group.zero_stage = 0;
  if (group.zero_stage > 0 && !group.apart.empty()) {
    group.zero_groups = groups_within(group.apart, how, cluster);
    if (group.zero_groups.empty()) group.zero_stage = 0;
    if (!group.zero_groups.empty() && group.shards.size() != group.zero_groups[0].size())
      group.shards = {};
  } else if (group.zero_stage > 0) {
    group.zero_groups = zero_groups(group.devices, how, cluster);
    if (group.zero_groups.empty()) {
      const ZeroGroupRefusal refusal = zero_group_refusal(group.devices, how, cluster);
      throw InputError(where(), refusal.found, refusal.accepted);
    }
  }
  if (group.zero_stage > 0 && group.zero_groups[0].size() == 1) group.zero_stage = 0;
  if (group.zero_stage == 0) {
    group.zero_groups.clear();
    group.shards = {};
    return;
  }
  group.summed_twice = group.zero_groups.size() > 1;
  group.seats.resize(group.devices.size());
  for (std::size_t g = 0; g < group.zero_groups.size(); ++g) {
    for (std::size_t rank = 0; rank < group.zero_groups[g].size(); ++rank)
      group.seats[group.index_of(group.zero_groups[g][rank])] = {g, rank};
  }
  std::int64_t elements = 0;
  for (const auto& [parameter, region] : group.contents) elements += region.volume();
  const std::size_t devices = group.zero_groups[0].size();
  if (group.shards.empty()) {
    group.shards = even_split(elements, devices);
    return;
  }
  if (group.shards.size() != devices) {
    throw InputError(where(), fmt::format("{} shares of its states", group.shards.size()),
                     group.zero_groups.size() == 1
                         ? fmt::format("{}, one for each device that sums its gradient", devices)
                         : fmt::format("{}, one for each device of a ZeRO group", devices));
  }
  group.shards =
      proportional_split(elements, std::vector<double>(group.shards.begin(), group.shards.end()));
}

std::vector<UnsplitGroup> bucket_groups(
    const Network& network, std::span<const ParameterId> bucket,
    const std::vector<std::vector<LayerId>>& users,
    const std::function<std::span<const Cell>(LayerId)>& cells_of,
    const std::function<const LayerPlan&(LayerId)>& plan_of) {
  std::vector<UnsplitGroup> groups;
  using States = std::tuple<std::int32_t, std::vector<std::int64_t>, std::int32_t, bool>;
  std::map<std::tuple<std::vector<DeviceId>, std::vector<DeviceId>, int, DeviceId, States,
                      std::vector<std::vector<DeviceId>>>,
           std::size_t>
      index;
  for (const ParameterId id : bucket) {
    const std::vector<LayerId>& layers = users[id.index()];
    const Uses uses = uses_of(network, id, layers, cells_of, plan_of);
    if (uses.all.empty()) continue;
    const LayerPlan& plan = plan_of(layers[0]);
    const Sync& sync = plan.sync;
    const ZeroSharding& zero = plan.zero;
    const States states{zero.stage, zero.shares, zero.group.ranks, zero.group.node};
    for (const auto& [piece, devices, mirrors] : sums(uses, sync, network, id)) {
      std::vector<std::vector<DeviceId>> parts;
      if (layers.size() > 1) parts = apart(uses, devices);
      const auto [at, fresh] = index.try_emplace(
          {devices, mirrors, static_cast<int>(sync.kind), sync.server, states, parts},
          groups.size());
      if (fresh) {
        groups.push_back(
            {{devices, mirrors, 0, sync, zero.stage, {}, false, {}, zero.shares, {}, {}, parts},
             zero.group});
      }
      SyncGroup& group = groups[at->second].group;
      group.contents.emplace_back(id, piece);
      group.layers.insert(group.layers.end(), layers.begin(), layers.end());
    }
  }
  for (UnsplitGroup& unsplit : groups) {
    std::vector<LayerId>& layers = unsplit.group.layers;
    std::sort(layers.begin(), layers.end());
    layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  }
  return groups;
}

std::vector<SyncGroup> sync_groups(const Network& network, const Cluster& cluster,
                                   const Plan& plan) {
  const std::vector<std::vector<LayerId>> users = users_of_parameters(network);
  const std::int64_t samples = plan.batch / plan.schedule.micro_batches;
  std::vector<SyncGroup> groups;
  std::map<LayerId, std::vector<Cell>> of_bucket;  // all at once are many
  const auto cells_of = [&](LayerId user) -> std::span<const Cell> {
    const auto [entry, fresh] = of_bucket.try_emplace(user);
    if (fresh) entry->second = cells(network, user, plan.layers[user.index()], samples);
    return entry->second;
  };
  for (const std::vector<ParameterId>& bucket : bucket_order(network, plan)) {
    of_bucket.clear();
    for (auto& [group, how] : bucket_groups(
             network, bucket, users, cells_of,
             [&](LayerId user) -> const LayerPlan& { return plan.layers[user.index()]; })) {
      split_states(network, cluster, how, group);
      group.zero_stage = zero_stage_of(group, plan.schedule);
      groups.push_back(std::move(group));
    }
  }
  return groups;
}

}  // namespace parsim::lowering
