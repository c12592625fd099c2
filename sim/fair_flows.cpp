#include "sim/fair_flows.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/errors.hpp"

namespace parsim::sim {

namespace {

/// Rates closer than this are equal: they differ by rounding in another order of additions.
constexpr double same_rate = 1e-13;
constexpr double same_date = 1e-12;

constexpr auto none = std::numeric_limits<std::uint32_t>::max();

template <class Entry>
void push(std::vector<Entry>& heap, const Entry& entry) {
  heap.push_back(entry);
  std::push_heap(heap.begin(), heap.end(), std::greater<>());
}

template <class Entry>
Entry pop(std::vector<Entry>& heap) {
  std::pop_heap(heap.begin(), heap.end(), std::greater<>());
  const Entry entry = heap.back();
  heap.pop_back();
  return entry;
}

}  // namespace

FairFlows::FairFlows(const Cluster& cluster, std::span<const Route* const> routes, Handler on_date,
                     Handler on_end, std::span<const RateChange> changes)
    : on_date_(std::move(on_date)),
      on_end_(std::move(on_end)),
      link_of_hop_(2 * cluster.links.size(), none),
      changes_(changes.rbegin(), changes.rend()) {
  std::vector<Index> index_of;  // by link: of its use in uses_
  first_use_.push_back(0);
  for (const Route* route : routes) {
    ensure(!route->hops.empty(), "a flow crosses at least one link");
    const auto first = static_cast<Index>(uses_.size());
    for (const Hop hop : route->hops) {
      Index& link = link_of_hop_[hop.index()];
      if (link == none) {
        link = static_cast<Index>(links_.size());
        links_.emplace_back().rate = cluster[hop.link].rate.value;
        index_of.push_back(none);
      }
      if (index_of[link] != none && index_of[link] >= first) {
        uses_[index_of[link]].weight += 1;
      } else {
        index_of[link] = static_cast<Index>(uses_.size());
        uses_.push_back({link, 1});
      }
    }
    first_use_.push_back(static_cast<Index>(uses_.size()));
    caps_.push_back(0);
    slowest_links_.push_back(0);
    find_cap(static_cast<Index>(caps_.size() - 1));
  }
}

void FairFlows::find_cap(Index route) {
  caps_[route] = std::numeric_limits<double>::infinity();
  for (const auto& [link, weight] : uses(route)) {
    const double rate = links_[link].rate / weight;
    if (rate >= caps_[route]) continue;
    caps_[route] = rate;
    slowest_links_[route] = link;
  }
}

void FairFlows::wake_at(Seconds date, std::int64_t token) {
  push(dates_, Date{date.count(), order_++, token});
}

void FairFlows::start(std::size_t route, Bytes payload, std::int64_t token) {
  if (payload.value <= 0) {
    at_once_.push_back(token);
    return;
  }
  if (free_flows_.empty()) {
    free_flows_.push_back(static_cast<Index>(flows_.size()));
    flows_.emplace_back();
  }
  const Index index = free_flows_.back();
  free_flows_.pop_back();
  Flow& flow = flows_[index];
  flow.route = static_cast<Index>(route);
  flow.remaining = static_cast<double>(payload.value);
  flow.rate = 0;
  flow.since = now_;
  flow.token = token;
  flow.positions.clear();
  for (Index use = 0; const auto& [to, weight] : uses(flow.route)) {
    Link& link = links_[to];
    flow.positions.push_back(static_cast<Index>(link.flows.size()));
    link.flows.push_back({index, use++});
    link.wanted += weight * caps_[route];
    link.weight += weight;
  }
  fresh_.push_back(index);
}

void FairFlows::change(Index link) {
  if (std::exchange(links_[link].changed, true)) return;
  changed_.push_back(link);
}

void FairFlows::remove(Index index) {
  Flow& flow = flows_[index];
  ++flow.version;
  work_.flows += 1;
  work_.live += static_cast<double>(flows_.size() - free_flows_.size());
  const double cap = caps_[flow.route];
  for (std::size_t use = 0; const auto& [from, weight] : uses(flow.route)) {
    Link& link = links_[from];
    if (link.contended()) {
      change(from);
      slowest_change_ = std::min(slowest_change_, flow.rate);
    }
    const Index position = flow.positions[use++];
    const Member last = link.flows.back();
    link.flows[position] = last;
    flows_[last.flow].positions[last.use] = position;
    link.flows.pop_back();
    link.wanted = link.flows.empty() ? 0 : link.wanted - weight * cap;
    link.weight -= weight;
  }
  free_flows_.push_back(index);
}

void FairFlows::run() {
  while (true) {
    for (std::size_t i = 0; i < at_once_.size(); ++i) on_end_(at_once_[i]);
    at_once_.clear();
    share();
    while (!ends_.empty() && ends_.front().version != flows_[ends_.front().flow].version) {
      pop(ends_);
    }
    if (ends_.empty() && dates_.empty()) return;
    double next = std::numeric_limits<double>::infinity();
    if (!ends_.empty()) next = ends_.front().date;
    if (!dates_.empty()) next = std::min(next, dates_.front().date);
    if (!changes_.empty()) next = std::min(next, changes_.back().date.count());
    now_ = std::max(now_, next);
    const double same = now_ * (1 + same_date);
    ended_.clear();
    while (!ends_.empty() && ends_.front().date <= same) {
      const End end = pop(ends_);
      if (end.version != flows_[end.flow].version) continue;
      ended_.push_back(flows_[end.flow].token);
      remove(end.flow);
    }
    change_rates();
    for (const std::int64_t token : ended_) on_end_(token);
    while (!dates_.empty() && dates_.front().date <= now_) on_date_(pop(dates_).token);
  }
}

/// Applies the link rate changes that are due. These are rare, so all flows get new rates from
/// zero: a link that was not contended before may be now.
void FairFlows::change_rates() {
  bool changed = false;
  for (; !changes_.empty() && changes_.back().date.count() <= now_; changes_.pop_back()) {
    for (const bool backwards : {false, true}) {
      const Index link = link_of_hop_[Hop{changes_.back().link, backwards}.index()];
      if (link == none) continue;
      links_[link].rate = changes_.back().rate.value;
      changed = true;
    }
  }
  if (!changed) return;
  for (Index route = 0; route < caps_.size(); ++route) find_cap(route);
  fresh_.clear();
  for (Link& link : links_) {
    link.wanted = 0;
    for (const Member& member : link.flows) {
      const Index route = flows_[member.flow].route;
      link.wanted += uses(route)[member.use].weight * caps_[route];
      if (member.use == 0) fresh_.push_back(member.flow);
    }
  }
  slowest_change_ = 0;
}

void FairFlows::share() {
  for (const Index index : fresh_) {
    const Flow& flow = flows_[index];
    double least = caps_[flow.route];
    bool alone = true;
    for (const auto& [to, weight] : uses(flow.route)) {
      const Link& link = links_[to];
      least = std::min(least, link.rate / link.weight);
      if (!link.contended()) continue;
      alone = false;
      change(to);
    }
    if (alone) {
      set_rate(index, caps_[flow.route]);
    } else {
      slowest_change_ = std::min(slowest_change_, least);
    }
  }
  fresh_.clear();
  if (changed_.empty()) return;
  ++sharing_;
  reached_links_.clear();
  reached_flows_.clear();
  for (const Index link : changed_) {
    links_[link].changed = false;
    reach(link);
  }
  // Grows while it is walked over.
  for (std::size_t i = 0; i < reached_links_.size(); ++i) {
    Link& link = links_[reached_links_[i]];
    for (const Member& member : link.flows) {
      Flow& flow = flows_[member.flow];
      if (flow.seen == sharing_) continue;
      if (flow.rate > 0 && flow.rate < slowest_change_ * (1 - same_rate)) continue;
      flow.seen = sharing_;
      flow.settled = false;
      reached_flows_.push_back(member.flow);
      for (const auto& [to, weight] : uses(flow.route)) {
        if (links_[to].contended()) reach(to);
      }
    }
  }
  fill();
  for (const Index index : reached_flows_) set_rate(index, flows_[index].next_rate);
  work_.reached += static_cast<double>(reached_flows_.size());
  changed_.clear();
  slowest_change_ = std::numeric_limits<double>::infinity();
}

void FairFlows::reach(Index link) {
  if (std::exchange(links_[link].seen, sharing_) != sharing_) reached_links_.push_back(link);
}

/// Progressive filling of the reached flows: all rates grow alike until a link is full or a flow
/// reaches the rate of its own links; such flows keep their rate, the others go on.
void FairFlows::fill() {
  levels_.clear();
  for (const Index index : reached_links_) {
    Link& link = links_[index];
    if (!link.contended()) continue;
    link.left = link.rate;
    link.left_weight = 0;
    link.waiting = 0;
    for (const Member& member : link.flows) {
      const Flow& flow = flows_[member.flow];
      const double weight = uses(flow.route)[member.use].weight;
      if (flow.seen == sharing_) {
        link.left_weight += weight;
        ++link.waiting;
      } else {
        link.left -= weight * flow.rate;
      }
    }
    if (link.waiting > 0) levels_.push_back({link.left / link.left_weight, index});
  }
  std::make_heap(levels_.begin(), levels_.end(), std::greater<>());
  // A contended link's level is below its flows' caps, so only those matter that a link sets which
  // is not contended.
  capped_.clear();
  for (const Index index : reached_flows_) {
    if (!links_[slowest_links_[flows_[index].route]].contended()) capped_.push_back(index);
  }
  std::sort(capped_.begin(), capped_.end(), [&](Index a, Index b) {
    const double one = caps_[flows_[a].route], other = caps_[flows_[b].route];
    return one != other ? one < other : a < b;
  });
  std::size_t next = 0;  // of the flows by cap
  while (true) {
    while (next < capped_.size() && flows_[capped_[next]].settled) ++next;
    const bool capped = next < capped_.size();
    if (!capped && levels_.empty()) return;
    const double cap = capped ? caps_[flows_[capped_[next]].route] : 0;
    if (capped && (levels_.empty() || cap <= levels_.front().rate)) {
      settle(capped_[next], cap);
      continue;
    }
    const Level lowest = pop(levels_);
    Link& link = links_[lowest.link];
    if (link.waiting == 0) continue;
    // A level only rises while others settle below it.
    const double level = link.left / link.left_weight;
    if (level > lowest.rate) {
      push(levels_, Level{level, lowest.link});
      continue;
    }
    ensure(level > 0, "every flow gets something");
    for (const Member& member : link.flows) {
      if (flows_[member.flow].seen == sharing_ && !flows_[member.flow].settled) {
        settle(member.flow, level);
      }
    }
  }
}

void FairFlows::settle(Index index, double rate) {
  Flow& flow = flows_[index];
  flow.settled = true;
  flow.next_rate = rate;
  for (const auto& [to, weight] : uses(flow.route)) {
    Link& link = links_[to];
    if (link.seen != sharing_) continue;
    link.left -= weight * rate;
    link.left_weight -= weight;
    --link.waiting;
  }
}

void FairFlows::set_rate(Index index, double rate) {
  Flow& flow = flows_[index];
  if (std::abs(rate - flow.rate) <= same_rate * flow.rate) return;
  flow.remaining = std::max(0.0, flow.remaining - flow.rate * (now_ - flow.since));
  flow.since = now_;
  flow.rate = rate;
  push(ends_, End{now_ + flow.remaining / rate, index, ++flow.version});
  if (ends_.size() > 64 + 4 * (flows_.size() - free_flows_.size())) forget_void_ends();
}

/// Flows that often get another rate would fill the heap.
void FairFlows::forget_void_ends() {
  std::erase_if(ends_, [&](const End& end) { return end.version != flows_[end.flow].version; });
  std::make_heap(ends_.begin(), ends_.end(), std::greater<>());
}

}  // namespace parsim::sim
