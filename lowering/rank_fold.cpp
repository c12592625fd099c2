#include "lowering/rank_fold.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

namespace parsim::lowering {

namespace {

/// Ranks of groups of that many devices; null if they are not next to each other in every layer.
std::shared_ptr<const AlikeDevices> in_groups_of(std::size_t count, const Plan& plan,
                                                 const Cluster& cluster, const RankSearch& search) {
  std::map<DeviceId, std::vector<DeviceId>> groups;  // by the first rank's device
  std::vector<DeviceId> first_of(cluster.devices.size());
  for (const LayerPlan& layer : plan.layers) {
    if (layer.devices.size() % count != 0) return nullptr;
    for (std::size_t begin = 0; begin < layer.devices.size(); begin += count) {
      const auto group = layer.devices.begin() + static_cast<std::ptrdiff_t>(begin);
      std::vector<DeviceId> members(group, group + static_cast<std::ptrdiff_t>(count));
      const DeviceId first = members[0];
      for (const DeviceId member : members) {
        DeviceId& known = first_of[member.index()];
        if (known.valid() && known != first) return nullptr;
        known = first;
      }
      if (groups.try_emplace(first, members).first->second != members) return nullptr;
    }
  }
  std::vector<std::vector<DeviceId>> ranks(count);
  for (const auto& [first, members] : groups) {
    for (std::size_t r = 0; r < count; ++r) {
      if (!ranks[r].empty() && members[r] <= ranks[r].back()) return nullptr;
      ranks[r].push_back(members[r]);
    }
  }
  // A device that is slower than others of its group makes its rank differ everywhere: sums of
  // gradients wait for it.
  std::map<std::vector<std::int32_t>, std::size_t> known;
  std::vector<std::size_t> classes;
  for (std::size_t r = 0; r < count; ++r) {
    const auto number = static_cast<std::int32_t>(r);
    std::vector<std::int32_t> key{static_cast<std::int32_t>(
        std::count_if(search.apart.begin(), search.apart.end(),
                      [&](std::int32_t begin) { return begin <= number; }))};
    for (const DeviceId device : ranks[r]) {
      key.push_back(cluster[device].model);
      key.push_back(search.cost->alike(device));
    }
    classes.push_back(known.try_emplace(std::move(key), known.size()).first->second);
  }
  if (known.size() == count) return nullptr;
  return std::make_shared<const AlikeDevices>(std::move(ranks), std::move(classes),
                                              cluster.devices.size());
}

bool same_size(const Region& a, const Region& b) {
  if (a.rank() != b.rank()) return false;
  for (std::size_t i = 0; i < a.rank(); ++i) {
    if (a[i].size() != b[i].size()) return false;
  }
  return true;
}

}  // namespace

std::shared_ptr<const AlikeDevices> ranks_of(const Plan& plan, const Cluster& cluster,
                                             const RankSearch& search) {
  std::set<std::size_t, std::greater<>> counts;
  for (const LayerPlan& layer : plan.layers) {
    if (!layer.cuts.empty() && layer.cuts.back().dim != Dim::sample)
      counts.insert(layer.cuts.back().sizes.size());
  }
  for (const std::size_t count : counts) {
    if (count < 2) break;
    if (count > search.most) continue;
    if (auto ranks = in_groups_of(count, plan, cluster, search)) return ranks;
  }
  return nullptr;
}

void RankSearch::learn(const AlikeDevices& ranks, std::int32_t differs) {
  constexpr std::size_t most_apart = 3;
  if (differs > 0 && apart.size() < most_apart && ranks.count() > 2) {
    apart.push_back(differs);
  } else {
    most = ranks.count() - 1;
    apart.clear();
  }
}

void RankFold::fold(std::shared_ptr<const AlikeDevices> ranks, const RankSearch& search) {
  ranks_ = dag_.fold.ranks = std::move(ranks);
  times_ = search.times != nullptr
               ? search.times
               : std::make_shared<KernelTimes>(dag_.network, *search.cost, dag_.precision,
                                               dag_.reduce_precision);
  const std::size_t devices = ranks_->unit_of.size();
  done_.resize(devices);
  number_.resize(devices);
}

bool RankFold::alike(WorkId a, WorkId b, Pass pass, DeviceId device) {
  if (a == b) return true;
  if (compared_.size() <= b.index()) compared_.resize(b.index() + 1);
  Compared& known = compared_[b.index()];
  if (known.with != a) known = {a};
  const auto bit = static_cast<std::uint8_t>(1U << static_cast<unsigned>(pass));
  if ((known.passes & bit) != 0) return (known.alike & bit) != 0;
  known.passes |= bit;
  const Work x = dag_.work(a), y = dag_.work(b);
  const auto terms = [](const Work& work) { return work.contraction_end - work.contraction_begin; };
  const bool equal = x.layer == y.layer && same_size(dag_.region(x.out), dag_.region(y.out)) &&
                     terms(x) == terms(y) && x.edges_to_partial_sum == y.edges_to_partial_sum &&
                     x.zigzag == y.zigzag && x.class_parts == y.class_parts &&
                     times_->of(x.layer, dag_.part(a), pass, device).time ==
                         times_->of(x.layer, dag_.part(b), pass, device).time;
  if (equal) known.alike |= bit;
  return equal;
}

bool RankFold::alike(const Slice& a, const Slice& b) const {
  const auto elements = [&](const Slice& slice) { return dag_.elements(slice); };
  return a.role == b.role && a.micro_batch == b.micro_batch && elements(a) == elements(b);
}

bool RankFold::receivers_alike(const Transfer& a, const Transfer& b) {
  const auto known = dag_.fold.receivers.find({a.from, a.to});
  if (known == dag_.fold.receivers.end() || first(a.to) != first(b.to)) return false;
  const std::vector<std::size_t>& like = ranks_->units_like(b.from);
  const auto sender = std::find(like.begin(), like.end(), static_cast<std::size_t>(rank(b.from)));
  known->second.resize(like.size());
  DeviceId& receiver = known->second[static_cast<std::size_t>(sender - like.begin())];
  if (!receiver.valid()) receiver = b.to;
  return receiver == b.to;
}

bool RankFold::alike(const Shares& a, const Shares& b) const {
  const auto volumes = [&](const Shares& shares) {
    std::vector<std::int64_t> all;
    for (const RegionId region : shares.regions) all.push_back(dag_.region(region).volume());
    for (const RegionId need : shares.needs) {
      for (const RegionId region : shares.regions)
        all.push_back(intersect(dag_.region(need), dag_.region(region)).volume());
    }
    return all;
  };
  return volumes(a) == volumes(b);
}

bool RankFold::shares_alike(OpId a, OpId b) {
  const std::int32_t x = dag_.record(a).to, y = dag_.record(b).to;
  if (x == y) return true;
  const auto [known, fresh] = shares_alike_.try_emplace({x, y});
  if (fresh) known->second = alike(dag_.shares(a), dag_.shares(b));
  return known->second;
}

OpId RankFold::next(const std::vector<OpId>& done, std::size_t& at, DeviceId device,
                    const std::vector<OpId>& after) {
  if (at == done.size()) return fail(device);
  const OpId same = done[at++];
  const std::span<const OpId> awaited = dag_.predecessors(same);
  return std::equal(awaited.begin(), awaited.end(), after.begin(), after.end()) ? same
                                                                                : fail(device);
}

template <class Kind, class Equal>
OpId RankFold::same(const Kind& op, DeviceId device, const std::vector<OpId>& after, Equal equal) {
  const OpId of_first = next(done_[first(device).index()], number_[device.index()], device, after);
  if (failed_) return of_first;
  const Op one = dag_.op(of_first);
  const Kind* const like = std::get_if<Kind>(&one);
  return like != nullptr && equal(*like, op) ? of_first : fail(device);
}

template <class Kind, class Equal>
OpId RankFold::add_own(const Kind& op, const std::vector<OpId>& after, Equal equal) {
  if (ranks_ == nullptr) return dag_.add(op, after);
  if (failed_ || rank(op.device) < 0) return fail();
  if (ranks_->keeps(op.device)) return did(op.device, dag_.add(op, after));
  return same(op, op.device, after, equal);
}

OpId RankFold::add(const Compute& op, const std::vector<OpId>& after) {
  return add_own(op, after, [&](const Compute& a, const Compute& b) {
    return a.pass == b.pass && a.micro_batch == b.micro_batch &&
           alike(a.work, b.work, a.pass, b.device);
  });
}

OpId RankFold::add(const Update& op, const std::vector<OpId>& after) {
  return add_own(op, after,
                 [&](const Update& a, const Update& b) { return alike(a.slice, b.slice); });
}

OpId RankFold::add(const Local& op, const std::vector<OpId>& after) {
  return add_own(op, after, [&](const Local& a, const Local& b) {
    return a.kind == b.kind && alike(a.from, b.from) && alike(a.to, b.to);
  });
}

OpId RankFold::add(const Transfer& op, Stream stream, const std::vector<OpId>& after) {
  if (ranks_ == nullptr) return dag_.add(op, stream, after);
  if (failed_ || rank(op.from) < 0 || rank(op.to) < 0) return fail();
  const bool within = rank(op.to) == rank(op.from);
  if (ranks_->keeps(op.from)) {
    if (!within) dag_.fold.receivers.try_emplace({op.from, op.to}, 1, op.to);
    return did(op.from, dag_.add(op, stream, after));
  }
  const OpId of_first = same(op, op.from, after, [&](const Transfer& a, const Transfer& b) {
    return (within ? a.to == first(b.to) : receivers_alike(a, b)) && a.add == b.add &&
           alike(a.slice, b.slice) && alike(a.target, b.target);
  });
  return failed_ || dag_.stream(of_first) == stream ? of_first : fail(op.from);
}

void RankFold::end() {
  if (ranks_ == nullptr || failed_) return;
  for (const std::vector<DeviceId>& unit : ranks_->devices) {
    for (const DeviceId device : unit) {
      if (ranks_->keeps(device)) continue;
      if (number_[device.index()] != done_[first(device).index()].size()) fail(device);
    }
  }
  for (const Group& group : groups_) {
    if (group.members != Members::some_ranks || ranks_->keeps(group.leader)) continue;
    if (group.done != collectives_[group.shape].size()) fail(group.leader);
  }
  for (const auto& [message, receivers] : dag_.fold.receivers) {
    const std::set<DeviceId> each(receivers.begin(), receivers.end());
    const bool all = each.size() == ranks_->units_like(message.first).size();
    if (!all || !each.begin()->valid()) fail();
  }
}

RankFold::Group RankFold::find(const std::vector<DeviceId>& members) {
  std::map<std::int32_t, std::size_t> ranks;  // how many, by group of ranks
  Group found;
  found.members = Members::others;
  std::vector<std::int32_t> shape;
  std::vector<DeviceId> outside;  // of units that are not kept
  for (const DeviceId member : members) {
    if (rank(member) < 0) {
      const AlikeUnits* units = dag_.fold.units.get();
      if (units == nullptr || units->keeps(member)) return found;
      outside.push_back(member);
      continue;
    }
    if (!found.leader.valid()) {
      found.leader = member;
      shape.push_back(rank(first(member)));
    }
    const std::int32_t position = ranks_->position_of[member.index()];
    ++ranks[position];
    shape.push_back(position);
    shape.push_back(rank(member) - rank(found.leader));
  }
  if (ranks.empty()) return found;
  // Groups of one unit and of several differ, even if they are of the same ranks.
  for (const DeviceId member : outside) {
    const AlikeUnits& units = *dag_.fold.units;
    const DeviceId kept = units.kept(member);
    if (rank(kept) < 0) return found;
    shape.push_back(units.unit_of[member.index()]);
    shape.push_back(ranks_->position_of[kept.index()]);
    shape.push_back(rank(kept) - rank(found.leader));
  }
  const bool all = std::all_of(ranks.begin(), ranks.end(),
                               [&](const auto& entry) { return entry.second == ranks_->count(); });
  found.members = all ? Members::all_ranks : Members::some_ranks;
  if (!all) found.shape = shapes_.try_emplace(std::move(shape), shapes_.size()).first->second;
  if (collectives_.size() < shapes_.size()) collectives_.resize(shapes_.size());
  return found;
}

RankFold::Group& RankFold::group_of(GroupId id) {
  if (groups_.size() <= id.index()) groups_.resize(id.index() + 1);
  Group& group = groups_[id.index()];
  if (group.members == Members::unknown) group = find(dag_.group(id));
  return group;
}

OpId RankFold::add(const Collective& op, const Shares& shares, Stream stream,
                   const std::vector<OpId>& after) {
  if (ranks_ == nullptr) return dag_.add(op, shares, stream, after);
  if (failed_) return fail();
  Group& group = group_of(op.group);
  if (group.members == Members::others) return fail();
  const OpId own = dag_.add(op, shares, stream, after);
  if (group.members == Members::all_ranks) return own;
  std::vector<OpId>& of_first = collectives_[group.shape];
  if (ranks_->keeps(group.leader)) {
    of_first.push_back(own);
    return own;
  }
  const OpId like = next(of_first, group.done, group.leader, after);
  if (failed_) return like;
  const bool equal = dag_.record(like).sub == dag_.record(own).sub && dag_.stream(like) == stream &&
                     dag_.payload(like) == dag_.payload(own) && shares_alike(like, own);
  dag_.fold.images.emplace_back(own, like);
  return equal ? like : fail(group.leader);
}

}  // namespace parsim::lowering
