// From a SimGrid platform to a cluster. SimGrid's links have no ends, only routes that list them:
// two consecutive links of a route have an end in common, which gives the graph.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <map>
#include <numeric>
#include <tuple>

#include "core/errors.hpp"
#include "topologies/builder.hpp"
#include "topologies/device_types.hpp"
#include "topologies/import/import.hpp"
#include "topologies/import/platform.hpp"
#include "topologies/topologies.hpp"

namespace parsim::topologies {

namespace {

constexpr std::size_t unknown = static_cast<std::size_t>(-1);

/// Vertices of the graph, joined step by step: first the points, then the two ends of each link.
class Vertices {
 public:
  explicit Vertices(const Platform& platform)
      : points_(platform.points.size()), parent_(points_ + 2 * platform.links.size()) {
    std::iota(parent_.begin(), parent_.end(), std::size_t{0});
  }
  [[nodiscard]] std::size_t size() const { return parent_.size(); }
  [[nodiscard]] std::size_t end(std::size_t link, bool second) const {
    return points_ + 2 * link + (second ? 1 : 0);
  }
  std::size_t root(std::size_t vertex) {
    while (parent_[vertex] != vertex) vertex = parent_[vertex] = parent_[parent_[vertex]];
    return vertex;
  }
  void join(std::size_t a, std::size_t b) {
    const auto [low, high] = std::minmax({root(a), root(b)});
    parent_[high] = low;  // points come first and give a vertex its name
  }
  bool same(std::size_t a, std::size_t b) { return root(a) == root(b); }

 private:
  std::size_t points_;
  std::vector<std::size_t> parent_;
};

class SimGridReader {
 public:
  SimGridReader(Platform platform, const std::string& file, const ImportOptions& options)
      : platform_(std::move(platform)),
        file_(file),
        options_(options),
        vertices_(platform_),
        oriented_(platform_.links.size(), false),
        used_(platform_.links.size()),
        crossed_(vertices_.size(), false),
        notes_(std::move(platform_.notes)) {}

  Imported read() && {
    place_named_ends();
    std::deque<const PlatformRoute*> waiting;
    for (const PlatformRoute& route : platform_.routes) waiting.push_back(&route);
    // Short routes constrain the ends of links most.
    std::stable_sort(waiting.begin(), waiting.end(),
                     [](const auto* a, const auto* b) { return a->hops.size() < b->hops.size(); });
    for (std::size_t failures = 0; !waiting.empty();) {
      const PlatformRoute& route = *waiting.front();
      waiting.pop_front();
      if (follow(route, failures > waiting.size())) {
        failures = 0;
      } else {
        ++failures;
        waiting.push_back(&route);
      }
    }
    check();
    return build();
  }

 private:
  /// Files that parsim wrote name both ends of every link.
  void place_named_ends() {
    std::map<std::string_view, std::size_t> points;
    for (std::size_t i = 0; i < platform_.points.size(); ++i) {
      points.emplace(platform_.points[i].name, i);
    }
    for (std::size_t i = 0; i < platform_.links.size(); ++i) {
      const PlatformLink& link = platform_.links[i];
      const auto a = link.props.find(platform_key::a), b = link.props.find(platform_key::b);
      if (a == link.props.end() || b == link.props.end()) continue;
      const auto at_a = points.find(a->second), at_b = points.find(b->second);
      if (at_a == points.end() || at_b == points.end()) {
        throw InputError(link.where,
                         fmt::format("unknown ends '{}' and '{}'", a->second, b->second),
                         "accepted: names of hosts or routers");
      }
      vertices_.join(vertices_.end(i, false), at_a->second);
      vertices_.join(vertices_.end(i, true), at_b->second);
      oriented_[i] = true;
    }
  }

  /// Follows a route as far as the direction of its links is known, and joins their ends if all
  /// are. `force`: links of unknown direction are crossed from the first end to the second.
  bool follow(const PlatformRoute& route, bool force) {
    const std::size_t count = route.hops.size();
    std::vector<int> way(count, 0);  // 1: from the first end to the second
    const auto entry = [&](std::size_t h) { return vertices_.end(route.hops[h].link, way[h] < 0); };
    const auto exit = [&](std::size_t h) { return vertices_.end(route.hops[h].link, way[h] > 0); };
    const auto find_out = [&](std::size_t h) {
      const PlatformHop& hop = route.hops[h];
      if (hop.direction != 0) return hop.direction;
      if (!oriented_[hop.link]) return 1;
      std::size_t before = unknown, after = unknown;
      if (h == 0)
        before = route.from;
      else if (way[h - 1] != 0)
        before = exit(h - 1);
      if (h + 1 == count)
        after = route.to;
      else if (way[h + 1] != 0)
        after = entry(h + 1);
      const std::size_t first = vertices_.end(hop.link, false),
                        second = vertices_.end(hop.link, true);
      if (before != unknown && vertices_.same(before, first)) return 1;
      if (before != unknown && vertices_.same(before, second)) return -1;
      if (after != unknown && vertices_.same(after, second)) return 1;
      if (after != unknown && vertices_.same(after, first)) return -1;
      return 0;
    };
    for (bool changed = true; changed;) {
      changed = false;
      for (std::size_t h = 0; h < count; ++h) {
        if (way[h] != 0) continue;
        way[h] = find_out(h);
        changed = changed || way[h] != 0;
      }
      const auto unclear = std::find(way.begin(), way.end(), 0);
      if (!changed && unclear != way.end() && force) {
        *unclear = 1;
        changed = true;
      }
    }
    if (std::find(way.begin(), way.end(), 0) != way.end()) return false;
    vertices_.join(route.from, entry(0));
    for (std::size_t h = 0; h + 1 < count; ++h) {
      vertices_.join(exit(h), entry(h + 1));
      crossings_.push_back(exit(h));
    }
    vertices_.join(exit(count - 1), route.to);
    for (std::size_t h = 0; h < count; ++h) {
      const PlatformHop& hop = route.hops[h];
      used_[hop.link].first |= route.both_ways || way[h] > 0;
      used_[hop.link].second |= route.both_ways || way[h] < 0;
      oriented_[hop.link] = true;
      if (platform_.links[hop.link].policy == "FATPIPE") {
        throw InputError(
            route.where,
            fmt::format("link '{}' has the sharing policy FATPIPE", platform_.links[hop.link].name),
            "accepted: SPLITDUPLEX or SHARED, whose rate is shared by flows");
      }
    }
    return true;
  }

  void check() {
    std::map<std::size_t, std::size_t> point_at;
    for (std::size_t i = 0; i < platform_.points.size(); ++i) {
      const auto [at, is_new] = point_at.emplace(vertices_.root(i), i);
      if (is_new) continue;
      throw InputError(platform_.points[i].where,
                       fmt::format("its routes put '{}' and '{}' at the same end of a link",
                                   platform_.points[at->second].name, platform_.points[i].name),
                       "accepted: routes over links with two ends");
    }
    for (std::size_t i = 0; i < platform_.links.size(); ++i) {
      if (!oriented_[i] || !vertices_.same(vertices_.end(i, false), vertices_.end(i, true)))
        continue;
      throw InputError(
          platform_.links[i].where,
          fmt::format("routes enter and leave the link '{}' at the same end: it is a bus",
                      platform_.links[i].name),
          "accepted: links with two ends; replace a bus by a <router> with a link to each host");
    }
    for (const std::size_t vertex : crossings_) crossed_[vertices_.root(vertex)] = true;
    std::vector<int> links_at(vertices_.size(), 0);
    for (std::size_t i = 0; i < platform_.links.size(); ++i) {
      if (!oriented_[i]) continue;
      ++links_at[vertices_.root(vertices_.end(i, false))];
      ++links_at[vertices_.root(vertices_.end(i, true))];
    }
    for (std::size_t i = 0; i < platform_.points.size(); ++i) {
      const std::size_t root = vertices_.root(i);
      if (platform_.points[i].forwards && links_at[root] > 1) crossed_[root] = true;
    }
  }

  Imported build();
  std::vector<Port> build_points(ClusterBuilder& builder);
  Port port_at(ClusterBuilder& builder, std::size_t vertex, const PlatformLink& link);
  NodeId node_named(ClusterBuilder& builder, const std::string& name);
  std::vector<bool> ways_back();

  Platform platform_;
  const std::string& file_;
  const ImportOptions& options_;
  Vertices vertices_;
  std::vector<bool> oriented_;               ///< by link: its ends are known
  std::vector<std::pair<bool, bool>> used_;  ///< by link: from its first end, from its second
  std::vector<bool> crossed_;                ///< by root: routes lead through it
  std::vector<std::size_t> crossings_;
  std::map<std::size_t, Port> port_of_;  ///< by root
  std::map<std::string, NodeId> nodes_;
  std::map<std::string, std::int64_t> joints_;
  std::vector<std::string> notes_;
};

NodeId SimGridReader::node_named(ClusterBuilder& builder, const std::string& name) {
  const auto found = nodes_.find(name);
  if (found != nodes_.end()) return found->second;
  return nodes_.emplace(name, builder.add_node(name)).first->second;
}

std::vector<Port> SimGridReader::build_points(ClusterBuilder& builder) {
  std::map<std::string, DeviceModel> models;
  std::vector<Port> hosts(platform_.points.size());
  for (std::size_t i = 0; i < platform_.points.size(); ++i) {
    const PlatformPoint& point = platform_.points[i];
    if (!point.is_host) {
      const auto node = prop_of(platform_.props, std::string(platform_key::node_of) + point.name);
      const SwitchId id =
          builder.add_switch(point.name, node ? node_named(builder, *node) : NodeId{});
      port_of_[vertices_.root(i)] = Port::of(id);
      continue;
    }
    const DeviceModel model =
        options_.device != nullptr ? *options_.device : model_of_host(point, file_);
    const auto [known, is_new] = models.try_emplace(model.name, model);
    if (!(known->second == model)) {
      throw InputError(point.where,
                       fmt::format("hosts of model '{}' differ in their props", model.name),
                       "accepted: equal props for one model");
    }
    std::optional<Bytes> memory;
    if (const auto text = prop_of(point.props, platform_key::memory)) {
      memory = parse_bytes(*text, point.where);
    }
    const std::string node = prop_of(point.props, platform_key::node).value_or(point.name);
    const DeviceId id =
        builder.add_device(point.name, known->second, node_named(builder, node), memory);
    if (is_new && known->second.name.starts_with("host-")) {
      notes_.push_back(fmt::format(
          "{}: SimGrid hosts have a speed only; memory ({}) and memory rate ({}) are guessed; "
          "FILE,device=NAME sets a known type for all hosts",
          known->first, to_text(known->second.memory), to_text(known->second.memory_rate)));
    }
    hosts[i] = port_of_[vertices_.root(i)] = Port::of(id);
  }
  // Devices forward nothing in parsim: a host that does gets a switch in front of it.
  for (std::size_t i = 0; i < platform_.points.size(); ++i) {
    if (!platform_.points[i].is_host || !crossed_[vertices_.root(i)]) continue;
    const NodeId node = builder.cluster().devices[static_cast<std::size_t>(hosts[i].index)].node;
    port_of_[vertices_.root(i)] =
        Port::of(builder.add_switch(platform_.points[i].name + ".port", node));
  }
  return hosts;
}

Port SimGridReader::port_at(ClusterBuilder& builder, std::size_t vertex, const PlatformLink& link) {
  const std::size_t root = vertices_.root(vertex);
  const auto found = port_of_.find(root);
  if (found != port_of_.end()) return found->second;
  const std::string name = fmt::format("{}.end{}", link.name, joints_[link.name]++);
  return port_of_[root] = Port::of(builder.add_switch(name));
}

/// A cable with two directions is often written as two links, there and back: which links are the
/// way back of one before them. Links left with one direction become a note.
std::vector<bool> SimGridReader::ways_back() {
  using Way = std::tuple<std::size_t, std::size_t, double, double>;  // from, to, rate, latency
  std::map<Way, std::size_t> alone;
  std::vector<bool> is_back(platform_.links.size(), false);
  for (std::size_t i = 0; i < platform_.links.size(); ++i) {
    const PlatformLink& link = platform_.links[i];
    const auto [first, second] = used_[i];
    if (link.props.contains(platform_key::a)) {  // parsim wrote it and names the other direction
      is_back[i] = link.props.contains(platform_key::back_of);
      continue;
    }
    if (!oriented_[i] || first == second || link.policy != "SHARED") continue;
    std::size_t from = vertices_.root(vertices_.end(i, false)),
                to = vertices_.root(vertices_.end(i, true));
    if (second) std::swap(from, to);
    const auto there = alone.find({to, from, link.rate.value, link.latency.count()});
    if (there == alone.end()) {
      ++alone[{from, to, link.rate.value, link.latency.count()}];
    } else {
      is_back[i] = true;
      if (--there->second == 0) alone.erase(there);
    }
  }
  std::size_t left = 0;
  for (const auto& [way, count] : alone) left += count;
  if (left > 0) {
    notes_.push_back(fmt::format("{} link{} used in one direction only; parsim gives {} both", left,
                                 left == 1 ? " is" : "s are", left == 1 ? "it" : "them"));
  }
  return is_back;
}

/// Of links that parsim wrote, each of whose directions draws half.
LinkPower power_of(const PlatformLink& link) {
  const auto range = prop_of(link.props, platform_key::wattage_range);
  if (!range || !link.props.contains(platform_key::a)) return {};
  const std::size_t colon = range->find(':');
  if (colon == std::string::npos) {
    throw InputError(link.where, fmt::format("'{}' of {}", *range, platform_key::wattage_range),
                     "accepted: 'idle:busy' in watts");
  }
  LinkPower power = with_power({}, range->substr(colon + 1) + " W", link.where,
                               range->substr(0, colon) + " W", link.where);
  for (auto* each : {&power.power, &power.idle_power}) *each = **each * 2;
  return power;
}

Imported SimGridReader::build() {
  const auto name = prop_of(platform_.props, platform_key::name);
  ClusterBuilder builder(name.value_or(std::filesystem::path(file_).stem().string()), file_);
  const std::vector<Port> hosts = build_points(builder);
  std::vector<double> rates(platform_.points.size(), 0);
  std::map<std::size_t, double> rate_at;
  std::size_t unused = 0, shared = 0;
  const std::vector<bool> is_back = ways_back();
  for (std::size_t i = 0; i < platform_.links.size(); ++i) {
    const PlatformLink& link = platform_.links[i];
    if (!oriented_[i]) {
      if (link.policy != "FATPIPE") ++unused;  // a loopback
      continue;
    }
    if (is_back[i]) continue;
    if (link.policy == "SHARED" && used_[i].first && used_[i].second) ++shared;
    const auto label = prop_of(link.props, platform_key::label);
    const std::int32_t source = builder.add_provenance(
        {"*", label ? parse_label(*label, link.where) : Label::guessed,
         prop_of(link.props, platform_key::source).value_or("given in " + file_)});
    const Port a = port_at(builder, vertices_.end(i, false), link),
               b = port_at(builder, vertices_.end(i, true), link);
    builder.add_link(a, b, link.rate, link.latency, source);
    builder.change().links.back().name = link.name;
    builder.change().links.back().power = power_of(link);
    rate_at[vertices_.root(vertices_.end(i, false))] += link.rate.value;
    rate_at[vertices_.root(vertices_.end(i, true))] += link.rate.value;
  }
  for (std::size_t i = 0; i < platform_.points.size(); ++i) {
    const std::size_t root = vertices_.root(i);
    if (!platform_.points[i].is_host || !crossed_[root] || rate_at[root] <= 0) continue;
    builder.add_link(
        hosts[i], port_of_[root], {rate_at[root]}, Seconds{0},
        builder.add_provenance(
            {"*", Label::guessed, "as fast as all links of the host, which forwards traffic"}));
  }
  if (shared > 0) {
    notes_.push_back(fmt::format(
        "{} link{} SHARED: in SimGrid both directions share the rate, in parsim each has it",
        shared, shared == 1 ? " is" : "s are"));
  }
  if (unused > 0) {
    notes_.push_back(
        fmt::format("{} link{} without a route left out", unused, unused == 1 ? "" : "s"));
  }
  return {std::move(builder).finish(), std::move(notes_)};
}

}  // namespace

Imported import_simgrid(const Element& root, const std::string& file,
                        const ImportOptions& options) {
  return SimGridReader(read_platform(root, file), file, options).read();
}

}  // namespace parsim::topologies
