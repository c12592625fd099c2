#include "strategies/hypergraph/initial.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

namespace parsim::strategies::hypergraph {

namespace {

/// The cost of one part that grows vertex by vertex: Σ_set [reads] · (all sources − own sources).
class GrowingPart {
 public:
  explicit GrowingPart(const Hypergraph& graph) : graph_(graph), sets_(graph.readers.size()) {
    for (std::size_t set = 0; set < sets_.size(); ++set) {
      for (const Source& source : graph.sources[set]) sets_[set].all += source.cost;
    }
  }
  void clear() {
    ++round_;
    cost_ = 0;
  }
  void add(Vertex v) {
    for (const Incidence& role : graph_.roles[at(v)]) {
      Set& set = sets_[at(role.set)];
      if (set.round != round_) {
        set.round = round_;
        set.reads = false;
        set.own = 0;
      }
      if (set.reads) cost_ -= set.all - set.own;
      set.reads = set.reads || role.reader;
      set.own += role.cost;
      if (set.reads) cost_ += set.all - set.own;
    }
  }
  [[nodiscard]] std::int64_t cost() const { return cost_; }

 private:
  struct Set {
    std::int64_t all = 0, own = 0;
    std::int32_t round = 0;
    bool reads = false;
  };
  const Hypergraph& graph_;
  std::vector<Set> sets_;
  std::int32_t round_ = 0;
  std::int64_t cost_ = 0;
};

}  // namespace

std::vector<std::vector<Vertex>> single_units(const Hypergraph& graph) {
  std::vector<std::vector<Vertex>> units;
  for (Vertex v = 0; v < graph.vertices; ++v) units.push_back({v});
  return units;
}

std::optional<Parts> cheapest_chain(const Hypergraph& graph, const Limits& limits,
                                    const std::vector<std::vector<Vertex>>& units,
                                    const std::vector<std::int32_t>& order) {
  const std::size_t n = units.size(), parts = order.size(), nc = at(limits.constraints);
  // Weights of the first units, and what the first and the last parts can hold.
  std::vector<std::int64_t> until((n + 1) * nc, 0);
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t c = 0; c < nc; ++c) {
      until[(i + 1) * nc + c] = until[i * nc + c];
      for (const Vertex v : units[i])
        until[(i + 1) * nc + c] += graph.weight(v, static_cast<std::int32_t>(c));
    }
  }
  std::vector<std::int64_t> capacity((parts + 1) * nc, 0);  // of the parts from p on
  for (std::size_t p = parts; p-- > 0;) {
    for (std::size_t c = 0; c < nc; ++c) {
      capacity[p * nc + c] = capacity[(p + 1) * nc + c] +
                             limits.caps[limits.index(order[p], static_cast<std::int32_t>(c))];
    }
  }
  const auto rest_fits = [&](std::size_t unit, std::size_t part) {
    for (std::size_t c = 0; c < nc; ++c) {
      if (until[n * nc + c] - until[unit * nc + c] > capacity[part * nc + c]) return false;
    }
    return true;
  };
  const auto range_fits = [&](std::size_t begin, std::size_t end, std::size_t part) {
    for (std::size_t c = 0; c < nc; ++c) {
      if (until[end * nc + c] - until[begin * nc + c] >
          limits.caps[limits.index(order[part], static_cast<std::int32_t>(c))])
        return false;
    }
    return true;
  };
  constexpr std::int64_t never = std::numeric_limits<std::int64_t>::max();
  // best[p][i]: cheapest way to give the first i units to the first p parts.
  std::vector<std::vector<std::int64_t>> best(parts + 1, std::vector<std::int64_t>(n + 1, never));
  std::vector<std::vector<std::size_t>> from(parts + 1, std::vector<std::size_t>(n + 1, 0));
  best[0][0] = 0;
  GrowingPart growing(graph);
  std::vector<std::size_t> open;
  for (std::size_t i = 0; i <= n; ++i) {
    open.clear();
    for (std::size_t p = 0; p < parts; ++p) {
      if (best[p][i] == never) continue;
      open.push_back(p);
      if (best[p][i] < best[p + 1][i]) {  // an empty part
        best[p + 1][i] = best[p][i];
        from[p + 1][i] = i;
      }
    }
    growing.clear();
    for (std::size_t j = i; j < n && !open.empty(); ++j) {
      for (const Vertex v : units[j]) growing.add(v);
      std::erase_if(open, [&](std::size_t p) { return !range_fits(i, j + 1, p); });
      for (const std::size_t p : open) {
        const std::int64_t cost = best[p][i] + growing.cost();
        if (cost >= best[p + 1][j + 1] || !rest_fits(j + 1, p + 1)) continue;
        best[p + 1][j + 1] = cost;
        from[p + 1][j + 1] = i;
      }
    }
  }
  if (best[parts][n] == never) return std::nullopt;
  Parts result(at(graph.vertices), 0);
  std::size_t end = n;
  for (std::size_t p = parts; p > 0; --p) {
    const std::size_t begin = from[p][end];
    for (std::size_t i = begin; i < end; ++i) {
      for (const Vertex v : units[i]) result[at(v)] = order[p - 1];
    }
    end = begin;
  }
  return result;
}

namespace {

/// How full a part is with `v` in it: the largest weight relative to its cap.
double fill(const Hypergraph& graph, const Limits& limits, const std::vector<std::int64_t>& weights,
            std::int32_t part, Vertex v) {
  double most = 0;
  for (std::int32_t c = 0; c < limits.constraints; ++c) {
    const std::size_t i = limits.index(part, c);
    const std::int64_t w = v < 0 ? 0 : graph.weight(v, c);
    if (v >= 0 && w == 0 && limits.constraints > 1) continue;
    most = std::max(most, static_cast<double>(weights[i] + w) /
                              std::max(1.0, static_cast<double>(limits.caps[i])));
  }
  return most;
}

void put(const Hypergraph& graph, const Limits& limits, std::vector<std::int64_t>& weights,
         Parts& parts, Vertex v, std::int32_t part) {
  parts[at(v)] = part;
  for (std::int32_t c = 0; c < limits.constraints; ++c)
    weights[limits.index(part, c)] += graph.weight(v, c);
}

/// Every unplaced vertex goes to the part with the most capacity left.
void place_rest(const Hypergraph& graph, const Limits& limits, std::vector<std::int64_t>& weights,
                Parts& parts, const std::vector<Vertex>& order) {
  for (const Vertex v : order) {
    if (parts[at(v)] >= 0) continue;
    std::int32_t best = 0;
    for (std::int32_t p = 1; p < limits.parts; ++p) {
      if (fill(graph, limits, weights, p, v) < fill(graph, limits, weights, best, v)) best = p;
    }
    put(graph, limits, weights, parts, v, best);
  }
}

/// Fixed vertices where they belong, the others at -1.
Parts only_fixed(const Hypergraph& graph, const Limits& limits,
                 std::vector<std::int64_t>& weights) {
  weights.assign(at(limits.parts) * at(limits.constraints), 0);
  Parts parts(at(graph.vertices), -1);
  for (Vertex v = 0; v < graph.vertices; ++v) {
    if (graph.fixed_part(v) >= 0) put(graph, limits, weights, parts, v, graph.fixed_part(v));
  }
  return parts;
}

std::vector<Vertex> shuffled(const Hypergraph& graph, Random& random) {
  std::vector<Vertex> order(at(graph.vertices));
  std::iota(order.begin(), order.end(), 0);
  random.shuffle(order);
  return order;
}

}  // namespace

Parts random_parts(const Hypergraph& graph, const Limits& limits, Random& random) {
  std::vector<std::int64_t> weights;
  Parts parts = only_fixed(graph, limits, weights);
  place_rest(graph, limits, weights, parts, shuffled(graph, random));
  return parts;
}

Parts grown_parts(const Hypergraph& graph, const Limits& limits, Random& random) {
  std::vector<std::int64_t> weights;
  Parts parts = only_fixed(graph, limits, weights);
  const std::vector<Vertex> order = shuffled(graph, random);
  std::vector<std::int32_t> sequence(at(limits.parts));
  std::iota(sequence.begin(), sequence.end(), 0);
  random.shuffle(sequence);
  sequence.pop_back();  // the last part takes what is left
  std::vector<double> attraction(at(graph.vertices));
  for (const std::int32_t p : sequence) {
    std::fill(attraction.begin(), attraction.end(), 0.0);
    // Targets without the tolerance: 95 % of the cap leaves the last part its share.
    for (bool grew = true; grew && fill(graph, limits, weights, p, -1) < 0.95;) {
      grew = false;
      Vertex best = -1;
      for (const Vertex v : order) {
        if (parts[at(v)] >= 0 || (best >= 0 && attraction[at(v)] <= attraction[at(best)])) continue;
        if (fill(graph, limits, weights, p, v) <= 1) best = v;
      }
      if (best < 0) break;
      put(graph, limits, weights, parts, best, p);
      grew = true;
      for (const Incidence& role : graph.roles[at(best)]) {
        const auto size = static_cast<double>(graph.readers[at(role.set)].size());
        double shared = static_cast<double>(role.cost);
        if (role.reader) {
          for (const Source& source : graph.sources[at(role.set)]) {
            shared += static_cast<double>(source.cost);
            attraction[at(source.vertex)] += static_cast<double>(source.cost) / size;
          }
        }
        for (const Vertex u : graph.readers[at(role.set)]) attraction[at(u)] += shared / size;
      }
    }
  }
  place_rest(graph, limits, weights, parts, order);
  return parts;
}

}  // namespace parsim::strategies::hypergraph
