#include "core/routes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <unordered_map>

#include "core/errors.hpp"

namespace parsim {

namespace {

/// One way out of a vertex.
struct Exit {
  std::int32_t to = -1;
  Hop hop;
};

/// A hop of some shortest path, from the source towards the target.
struct Step {
  std::int32_t from = -1, to = -1;
  Hop hop;
};
/// The steps that lead from distance i of the source to distance i + 1.
using Stages = std::vector<std::vector<Step>>;

/// Vertices met by a search, with their distance. Valid while `search` is the number of the running
/// one, so that nothing needs clearing between searches.
struct Mark {
  std::uint64_t search = 0;
  std::int32_t distance = 0;
};

struct ToGo {
  double rate = 0;     ///< widest bottleneck to the target
  double latency = 0;  ///< shortest latency over links of that rate
};

constexpr double infinite = std::numeric_limits<double>::infinity();

constexpr std::uint64_t key_of(std::int32_t from, std::int32_t to) {
  return (std::uint64_t{static_cast<std::uint32_t>(from)} << 32) | static_cast<std::uint32_t>(to);
}

/// Sums of the same latencies in another order differ in their last bits; they count as equal.
bool about_equal_or_less(double a, double b) { return a <= b * (1 + 1e-9); }

}  // namespace

/// Vertices are the devices, then the switches.
///
/// A pair is searched from both ends until the two balls touch, which visits a few dozen vertices
/// in a cluster of thousands of devices; so there is no tree per source to keep. Nothing looks at
/// all exits of a vertex except to expand it, or a switch with 65,536 ports would cost that much
/// for every pair.
struct Routes::State {
  const Cluster& cluster;
  std::vector<std::size_t> first_exit;  ///< exits of v: [first_exit[v], first_exit[v + 1])
  std::vector<Exit> exits;              ///< by vertex, then by link id
  std::unordered_map<std::uint64_t, Route> known;  ///< looked up only, never walked
  /// Of two switches, as above; empty: not only one.
  std::unordered_map<std::uint64_t, std::vector<Hop>> only_ways;

  std::uint64_t search = 0;
  std::vector<Mark> from_source, from_target, on_path;
  std::vector<ToGo> to_go;
  Stages last_stages;                          ///< of the last search
  std::int32_t last_near = -1, last_far = -1;  ///< the switches that it was between; -1: devices

  explicit State(const Cluster& c) : cluster(c) {}

  /// Of 131,072 devices the graph has 10 MB, and many a search or step asks for no route.
  void find_exits() {
    if (!first_exit.empty()) return;
    const Cluster& c = cluster;
    const std::size_t vertices = c.devices.size() + c.switches.size();
    first_exit.assign(vertices + 1, 0);
    for (const Link& link : c.links) {
      ++first_exit[vertex(link.a) + 1];
      ++first_exit[vertex(link.b) + 1];
    }
    for (std::size_t v = 0; v < vertices; ++v) first_exit[v + 1] += first_exit[v];
    exits.resize(first_exit.back());
    std::vector<std::size_t> next(first_exit.begin(), first_exit.end() - 1);
    for (std::size_t i = 0; i < c.links.size(); ++i) {
      const std::size_t a = vertex(c.links[i].a), b = vertex(c.links[i].b);
      exits[next[a]++] = {static_cast<std::int32_t>(b), {LinkId{i}, false}};
      exits[next[b]++] = {static_cast<std::int32_t>(a), {LinkId{i}, true}};
    }
    from_source.resize(vertices);
    from_target.resize(vertices);
    on_path.resize(vertices);
    to_go.resize(vertices);
  }

  [[nodiscard]] std::size_t vertex(Port port) const {
    const auto index = static_cast<std::size_t>(port.index);
    return port.kind == Port::Kind::device ? index : cluster.devices.size() + index;
  }
  [[nodiscard]] bool is_device(std::int32_t v) const {
    return static_cast<std::size_t>(v) < cluster.devices.size();
  }
  [[nodiscard]] std::span<const Exit> exits_of(std::int32_t v) const {
    const auto i = static_cast<std::size_t>(v);
    return {exits.data() + first_exit[i], exits.data() + first_exit[i + 1]};
  }
  [[nodiscard]] std::size_t width(const std::vector<std::int32_t>& frontier) const {
    std::size_t sum = 0;
    for (const std::int32_t v : frontier) sum += exits_of(v).size();
    return sum;
  }
  [[nodiscard]] bool marked(const std::vector<Mark>& marks, std::int32_t v) const {
    return marks[static_cast<std::size_t>(v)].search == search;
  }
  /// True if it was not marked before.
  bool mark(std::vector<Mark>& marks, std::int32_t v, std::int32_t distance) const {
    if (marked(marks, v)) return false;
    marks[static_cast<std::size_t>(v)] = {search, distance};
    return true;
  }

  /// Breadth first from both ends, always a whole layer of the narrower side. Returns the steps of
  /// all shortest paths; empty if there is none.
  Stages shortest_paths(std::int32_t source, std::int32_t target) {
    ++search;
    Stages near, far;  // far[i] leads from distance i + 1 of the target to distance i
    std::vector<std::int32_t> near_rim{source}, far_rim{target}, next;
    mark(from_source, source, 0);
    mark(from_target, target, 0);
    for (bool met = false; !met;) {
      if (near_rim.empty() || far_rim.empty()) return {};
      const bool forwards = width(near_rim) <= width(far_rim);
      Stages& stages = forwards ? near : far;
      std::vector<std::int32_t>& rim = forwards ? near_rim : far_rim;
      std::vector<Mark>& own = forwards ? from_source : from_target;
      const std::vector<Mark>& other = forwards ? from_target : from_source;
      std::vector<Step>& steps = stages.emplace_back();
      const auto depth = static_cast<std::int32_t>(stages.size());
      next.clear();
      for (const std::int32_t v : rim) {
        for (const Exit& exit : exits_of(v)) {
          // A device forwards nothing: it is on a path as its end only.
          if (is_device(exit.to) && exit.to != source && exit.to != target) continue;
          if (mark(own, exit.to, depth)) next.push_back(exit.to);
          if (own[static_cast<std::size_t>(exit.to)].distance != depth) continue;
          met = met || marked(other, exit.to);
          steps.push_back(forwards ? Step{v, exit.to, exit.hop}
                                   : Step{exit.to, v, {exit.hop.link, !exit.hop.backwards}});
        }
      }
      std::swap(rim, next);
    }
    return prune(std::move(near), std::move(far), source);
  }

  /// Joins the halves of a search where they meet and drops the steps that lead elsewhere.
  Stages prune(Stages near, Stages far, std::int32_t source) {
    const auto keep = [&](std::vector<Step>& steps, auto&& wanted) {
      std::erase_if(steps, [&](const Step& step) { return !wanted(step); });
      for (const Step& step : steps) {
        mark(on_path, step.from, 0);
        mark(on_path, step.to, 0);
        to_go[static_cast<std::size_t>(step.from)] = {0, infinite};
      }
    };
    mark(on_path, source, 0);
    for (std::size_t i = near.size(); i-- > 0;) {
      const auto& goal = i + 1 == near.size() ? from_target : on_path;
      keep(near[i], [&](const Step& step) { return marked(goal, step.to); });
    }
    for (std::size_t i = far.size(); i-- > 0;) {
      keep(far[i], [&](const Step& step) { return marked(on_path, step.from); });
    }
    near.insert(near.end(), std::make_move_iterator(far.rbegin()),
                std::make_move_iterator(far.rend()));
    return near;
  }

  [[nodiscard]] const Link& link(const Step& step) const { return cluster[step.hop.link]; }
  [[nodiscard]] ToGo& togo(std::int32_t v) { return to_go[static_cast<std::size_t>(v)]; }
  [[nodiscard]] double latency(const Step& step) {
    return link(step).latency.count() + togo(step.to).latency;
  }

  /// Two passes from the target, because a path that is wider so far need not be the faster one
  /// once a later link narrows both: first the widest bottleneck, then latency over links that
  /// have it. Returns the widest.
  double price(const Stages& stages, std::int32_t source, std::int32_t target) {
    togo(target) = {infinite, 0};
    const auto each_step_backwards = [&](auto&& use) {
      for (auto steps = stages.rbegin(); steps != stages.rend(); ++steps) {
        for (const Step& step : *steps) use(step, togo(step.from));
      }
    };
    each_step_backwards([&](const Step& step, ToGo& here) {
      here.rate = std::max(here.rate, std::min(link(step).rate.value, togo(step.to).rate));
    });
    const double widest = togo(source).rate;
    each_step_backwards([&](const Step& step, ToGo& here) {
      if (link(step).rate.value >= widest) here.latency = std::min(here.latency, latency(step));
    });
    return widest;
  }

  /// The same between devices that hang on one switch each: all pairs of two switches' devices have
  /// one search, if they are asked for one after another.
  const Stages& paths(std::int32_t source, std::int32_t target) {
    const auto ways_out = exits_of(source), ways_in = exits_of(target);
    const bool single = ways_out.size() == 1 && ways_in.size() == 1;
    const std::int32_t near = single ? ways_out[0].to : -1, far = single ? ways_in[0].to : -1;
    if (!single || near == far || is_device(near) || is_device(far)) {
      last_near = -1;
      last_stages = shortest_paths(source, target);
      return last_stages;
    }
    if (near != last_near || far != last_far) {
      last_stages = shortest_paths(near, far);
      if (last_stages.empty()) {
        last_near = -1;
        return last_stages;
      }
      last_stages.insert(last_stages.begin(), std::vector<Step>());
      last_stages.emplace_back();
      last_near = near;
      last_far = far;
    }
    const Hop in = ways_in[0].hop;
    last_stages.front() = {{source, near, ways_out[0].hop}};
    last_stages.back() = {{far, target, {in.link, !in.backwards}}};
    for (const std::vector<Step>& steps : last_stages) {
      for (const Step& step : steps) togo(step.from) = {0, infinite};
    }
    return last_stages;
  }

  Route find(std::int32_t source, std::int32_t target) {
    const Stages& stages = paths(source, target);
    if (stages.empty()) {
      throw InputError(fmt::format("cluster '{}'", cluster.name),
                       fmt::format("no path from device '{}' to device '{}'",
                                   cluster.devices[static_cast<std::size_t>(source)].name,
                                   cluster.devices[static_cast<std::size_t>(target)].name),
                       "join them by a link or by switches");
    }
    const double widest = price(stages, source, target);
    Route route{{}, Seconds{0}, BytesPerSecond{infinite}};
    route.hops.reserve(stages.size());
    std::vector<const Step*> equal;
    // Destination modulo, digit by digit, as fat trees are routed (D-mod-k): neighbours in id order
    // then take different ways, and a shift of all devices is free of contention.
    auto digits = static_cast<std::size_t>(target);
    std::int32_t at = source;
    for (const std::vector<Step>& steps : stages) {
      equal.clear();
      for (const Step& step : steps) {
        if (step.from == at && link(step).rate.value >= widest &&
            about_equal_or_less(latency(step), togo(at).latency)) {
          equal.push_back(&step);
        }
      }
      ensure(!equal.empty(), "a shortest path goes on to its end");
      // The order in which a search meets them depends on where it began.
      std::sort(equal.begin(), equal.end(),
                [](const Step* a, const Step* b) { return a->hop < b->hop; });
      const Step& chosen = *equal[digits % equal.size()];
      digits /= equal.size();
      route.hops.push_back(chosen.hop);
      route.latency += link(chosen).latency;
      route.rate = std::min(route.rate, link(chosen).rate);
      at = chosen.to;
    }
    return route;
  }
};

Routes::Routes(const Cluster& cluster) : state_(std::make_unique<State>(cluster)) {}
Routes::~Routes() = default;

std::vector<Hop> Routes::cables_of(DeviceId device) const {
  state_->find_exits();
  std::vector<Hop> cables;
  for (const Exit& exit : state_->exits_of(device.value)) {
    if (state_->is_device(exit.to)) cables.push_back(exit.hop);
  }
  return cables;
}

std::optional<SwitchCable> Routes::only_cable(DeviceId device) const {
  state_->find_exits();
  const std::span<const Exit> exits = state_->exits_of(device.value);
  if (exits.size() != 1 || state_->is_device(exits[0].to)) return std::nullopt;
  return SwitchCable{
      SwitchId{static_cast<std::size_t>(exits[0].to) - state_->cluster.devices.size()},
      exits[0].hop};
}

const std::vector<Hop>* Routes::only_way(SwitchId from, SwitchId to) {
  const auto [known, fresh] = state_->only_ways.try_emplace(key_of(from.value, to.value));
  std::vector<Hop>& hops = known->second;
  if (fresh && from != to) {
    state_->find_exits();
    const auto vertex = [&](SwitchId id) {
      return static_cast<std::int32_t>(state_->vertex(Port::of(id)));
    };
    const Stages stages = state_->shortest_paths(vertex(from), vertex(to));
    const bool one = std::all_of(stages.begin(), stages.end(),
                                 [](const auto& steps) { return steps.size() == 1; });
    for (std::size_t i = 0; one && i < stages.size(); ++i) hops.push_back(stages[i][0].hop);
  }
  return hops.empty() ? nullptr : &hops;
}

const Route& Routes::between(DeviceId from, DeviceId to) {
  const std::size_t count = state_->cluster.devices.size();
  ensure(from.valid() && to.valid() && from.index() < count && to.index() < count,
         "a route is between devices of the cluster");
  const std::uint64_t key = key_of(from.value, to.value);
  const auto found = state_->known.find(key);
  if (found != state_->known.end()) return found->second;
  state_->find_exits();
  Route route = from == to ? Route{{}, Seconds{0}, BytesPerSecond{infinite}}
                           : state_->find(from.value, to.value);
  return state_->known.emplace(key, std::move(route)).first->second;
}

}  // namespace parsim
