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

void RankFold::fold(std::shared_ptr<const AlikeDevices> ranks, const CostModel& cost) {
  ranks_ = dag_.fold.ranks = std::move(ranks);
  times_ = std::make_unique<KernelTimes>(dag_.network, cost, dag_.precision, dag_.reduce_precision);
  const std::size_t devices = ranks_->unit_of.size();
  done_.resize(devices);
  summed_.resize(devices);
  number_.resize(devices);
  sums_.resize(devices);
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

OpId RankFold::next(std::vector<std::vector<OpId>>& done, std::vector<std::size_t>& number,
                    DeviceId device, const std::vector<OpId>& after) {
  const std::vector<OpId>& all = done[first(device).index()];
  std::size_t& at = number[device.index()];
  if (at == all.size()) return fail(device);
  const OpId same = all[at++];
  const std::span<const OpId> awaited = dag_.predecessors(same);
  return std::equal(awaited.begin(), awaited.end(), after.begin(), after.end()) ? same
                                                                                : fail(device);
}

template <class Kind, class Equal>
OpId RankFold::same(const Kind& op, DeviceId device, const std::vector<OpId>& after, Equal equal) {
  const OpId of_first = next(done_, number_, device, after);
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
  if (failed_ || rank(op.from) < 0 || rank(op.to) != rank(op.from)) return fail();
  if (ranks_->keeps(op.from)) return did(op.from, dag_.add(op, stream, after));
  const OpId of_first = same(op, op.from, after, [&](const Transfer& a, const Transfer& b) {
    return a.to == first(b.to) && a.add == b.add && alike(a.slice, b.slice) &&
           alike(a.target, b.target);
  });
  return failed_ || dag_.stream(of_first) == stream ? of_first : fail(op.from);
}

RankFold::Members RankFold::members_of(GroupId group) {
  if (members_.size() <= group.index()) members_.resize(group.index() + 1, Members::unknown);
  Members& known = members_[group.index()];
  if (known != Members::unknown) return known;
  std::map<std::int32_t, std::size_t> ranks;  // by tensor-parallel group
  std::set<std::int32_t> seen;
  for (const DeviceId member : dag_.group(group)) {
    if (rank(member) >= 0) {
      ++ranks[ranks_->position_of[member.index()]];
      seen.insert(rank(member));
    } else if (dag_.fold.units == nullptr || dag_.fold.units->keeps(member)) {
      return known = Members::others;
    }
  }
  const bool closed = std::all_of(ranks.begin(), ranks.end(), [&](const auto& entry) {
    return entry.second == ranks_->count();
  });
  if (ranks.empty()) return known = Members::others;
  return known = closed             ? Members::all_ranks
                 : seen.size() == 1 ? Members::one_rank
                                    : Members::others;
}

OpId RankFold::add(const Collective& op, const Shares& shares, Stream stream,
                   const std::vector<OpId>& after) {
  if (ranks_ == nullptr) return dag_.add(op, shares, stream, after);
  const Members members = failed_ ? Members::others : members_of(op.group);
  if (members == Members::others) return fail();
  const OpId own = dag_.add(op, shares, stream, after);
  if (members == Members::all_ranks) return own;
  std::vector<DeviceId> of_first;  // the members in the kept rank's place
  DeviceId leader;
  for (const DeviceId member : dag_.group(op.group)) {
    if (rank(member) < 0) continue;
    of_first.push_back(first(member));
    if (!leader.valid()) leader = member;
  }
  if (ranks_->keeps(leader)) {
    summed_[leader.index()].push_back(own);
    return own;
  }
  const OpId like = next(summed_, sums_, leader, after);
  if (failed_) return like;
  std::vector<DeviceId> firsts;
  for (const DeviceId member : dag_.group(GroupId{dag_.record(like).device})) {
    if (rank(member) >= 0) firsts.push_back(member);
  }
  const bool equal = dag_.kind(like) == OpKind::collective && firsts == of_first &&
                     dag_.record(like).sub == dag_.record(own).sub && dag_.stream(like) == stream &&
                     dag_.payload(like) == dag_.payload(own);
  dag_.fold.images.emplace_back(own, like);
  return equal ? like : fail(leader);
}

}  // namespace parsim::lowering
