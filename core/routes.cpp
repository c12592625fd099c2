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

/// What a search knows about a vertex; valid if `search` is the number of the running one, so that
/// nothing needs clearing between searches.
struct Mark {
  std::uint64_t search = 0;
  std::int32_t distance = 0;
};

struct ToGo {
  double rate = 0;     ///< widest bottleneck to the destination
  double latency = 0;  ///< shortest latency over links of that rate
};

constexpr double infinite = std::numeric_limits<double>::infinity();

/// Sums of the same latencies in another order differ in their last bits; they count as equal.
bool about_equal_or_less(double a, double b) { return a <= b * (1 + 1e-9); }

}  // namespace

/// Vertices are the devices, then the switches.
///
/// A pair is searched from both ends until the two balls touch, which visits a few dozen vertices
/// in a cluster of thousands of devices; so there is no tree per source to keep.
struct Routes::State {
  const Cluster& cluster;
  std::vector<std::size_t> first_exit;  ///< exits of v: [first_exit[v], first_exit[v + 1])
  std::vector<Exit> exits;              ///< by vertex, then by link id
  std::unordered_map<std::uint64_t, Route> known;  ///< looked up only, never walked

  std::uint64_t search = 0;
  std::vector<Mark> from_source, from_target, level;
  std::vector<ToGo> to_go;

  explicit State(const Cluster& c) : cluster(c) {
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
    level.resize(vertices);
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
  [[nodiscard]] bool marked(const std::vector<Mark>& marks, std::int32_t v,
                            std::int32_t distance) const {
    return marked(marks, v) && marks[static_cast<std::size_t>(v)].distance == distance;
  }
  bool mark(std::vector<Mark>& marks, std::int32_t v, std::int32_t distance) const {
    if (marked(marks, v)) return false;
    marks[static_cast<std::size_t>(v)] = {search, distance};
    return true;
  }

  using Layers = std::vector<std::vector<std::int32_t>>;

  /// Breadth first from both ends, always a whole layer of the narrower side. Returns the vertices
  /// of every shortest path by distance from the source, with `level` set; empty if there is none.
  Layers shortest_paths(std::int32_t source, std::int32_t target) {
    ++search;
    std::vector<std::int32_t> near{source}, far{target}, next, meeting;
    std::int32_t near_depth = 0, far_depth = 0;
    mark(from_source, source, 0);
    mark(from_target, target, 0);
    while (meeting.empty()) {
      if (near.empty() || far.empty()) return {};
      const bool forwards = width(near) <= width(far);
      auto& frontier = forwards ? near : far;
      auto& own = forwards ? from_source : from_target;
      auto& other = forwards ? from_target : from_source;
      const std::int32_t depth = forwards ? ++near_depth : ++far_depth;
      next.clear();
      for (const std::int32_t v : frontier) {
        for (const Exit& exit : exits_of(v)) {
          // A device forwards nothing: it is on a path as its end only.
          if (is_device(exit.to) && exit.to != source && exit.to != target) continue;
          if (!mark(own, exit.to, depth)) continue;
          next.push_back(exit.to);
          if (marked(other, exit.to)) meeting.push_back(exit.to);
        }
      }
      std::swap(frontier, next);
    }
    Layers layers(static_cast<std::size_t>(near_depth + far_depth) + 1);
    layers[static_cast<std::size_t>(near_depth)] = meeting;
    for (const std::int32_t v : meeting) mark(level, v, near_depth);
    const auto spread = [&](const std::vector<Mark>& marks, std::int32_t at, std::int32_t to,
                            std::int32_t distance) {
      for (const std::int32_t v : layers[static_cast<std::size_t>(at)]) {
        for (const Exit& exit : exits_of(v)) {
          if (!marked(marks, exit.to, distance) || !mark(level, exit.to, to)) continue;
          layers[static_cast<std::size_t>(to)].push_back(exit.to);
        }
      }
    };
    for (std::int32_t i = near_depth; i > 0; --i) spread(from_source, i, i - 1, i - 1);
    for (std::int32_t i = far_depth; i > 0; --i) {
      const std::int32_t at = near_depth + far_depth - i;
      spread(from_target, at, at + 1, i - 1);
    }
    return layers;
  }

  [[nodiscard]] const Link& link(const Exit& exit) const { return cluster[exit.hop.link]; }
  [[nodiscard]] ToGo& togo(std::int32_t v) { return to_go[static_cast<std::size_t>(v)]; }

  /// Two passes from the target, because a path that is wider so far need not be the faster one
  /// once a later link narrows both: first the widest bottleneck, then latency over links that
  /// have it.
  void price(const Layers& layers) {
    const auto last = static_cast<std::int32_t>(layers.size()) - 1;
    togo(layers.back().front()) = {infinite, 0};
    const auto each_exit = [&](auto&& use) {
      for (std::int32_t i = last - 1; i >= 0; --i) {
        for (const std::int32_t v : layers[static_cast<std::size_t>(i)]) {
          use(v, -1, nullptr);
          for (const Exit& exit : exits_of(v)) {
            if (marked(level, exit.to, i + 1)) use(v, exit.to, &link(exit));
          }
        }
      }
    };
    each_exit([&](std::int32_t v, std::int32_t to, const Link* over) {
      double& rate = togo(v).rate;
      rate = over == nullptr ? 0 : std::max(rate, std::min(over->rate.value, togo(to).rate));
    });
    const double widest = togo(layers.front().front()).rate;
    each_exit([&](std::int32_t v, std::int32_t to, const Link* over) {
      double& latency = togo(v).latency;
      if (over == nullptr) {
        latency = infinite;
      } else if (over->rate.value >= widest) {
        latency = std::min(latency, over->latency.count() + togo(to).latency);
      }
    });
  }

  Route find(std::int32_t source, std::int32_t target) {
    const Layers layers = shortest_paths(source, target);
    if (layers.empty()) {
      throw InputError(fmt::format("cluster '{}'", cluster.name),
                       fmt::format("no path from device '{}' to device '{}'",
                                   cluster.devices[static_cast<std::size_t>(source)].name,
                                   cluster.devices[static_cast<std::size_t>(target)].name),
                       "join them by a link or by switches");
    }
    price(layers);
    const double widest = togo(source).rate;
    Route route{{}, Seconds{0}, BytesPerSecond{infinite}};
    route.hops.reserve(layers.size() - 1);
    std::vector<const Exit*> equal;
    // Destination modulo, digit by digit, as fat trees are routed (D-mod-k): neighbours in id order
    // then take different ways, and a shift of all devices is free of contention.
    auto digits = static_cast<std::size_t>(target);
    for (std::int32_t v = source, i = 1; v != target; ++i) {
      equal.clear();
      for (const Exit& exit : exits_of(v)) {
        if (marked(level, exit.to, i) && link(exit).rate.value >= widest &&
            about_equal_or_less(link(exit).latency.count() + togo(exit.to).latency,
                                togo(v).latency)) {
          equal.push_back(&exit);
        }
      }
      ensure(!equal.empty(), "a shortest path goes on to its end");
      const Exit& chosen = *equal[digits % equal.size()];
      digits /= equal.size();
      route.hops.push_back(chosen.hop);
      route.latency += link(chosen).latency;
      route.rate = std::min(route.rate, link(chosen).rate);
      v = chosen.to;
    }
    return route;
  }
};

Routes::Routes(const Cluster& cluster) : state_(std::make_unique<State>(cluster)) {}
Routes::~Routes() = default;

const Route& Routes::between(DeviceId from, DeviceId to) {
  const std::size_t count = state_->cluster.devices.size();
  ensure(from.valid() && to.valid() && from.index() < count && to.index() < count,
         "a route is between devices of the cluster");
  const std::uint64_t key = (std::uint64_t{static_cast<std::uint32_t>(from.value)} << 32) |
                            static_cast<std::uint32_t>(to.value);
  const auto found = state_->known.find(key);
  if (found != state_->known.end()) return found->second;
  Route route = from == to ? Route{{}, Seconds{0}, BytesPerSecond{infinite}}
                           : state_->find(from.value, to.value);
  return state_->known.emplace(key, std::move(route)).first->second;
}

}  // namespace parsim
