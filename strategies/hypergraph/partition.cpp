#include "strategies/hypergraph/partition.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <span>

#include "core/errors.hpp"
#include "core/random.hpp"
#include "strategies/hypergraph/balance.hpp"
#include "strategies/hypergraph/coarsen.hpp"
#include "strategies/hypergraph/initial.hpp"
#include "strategies/hypergraph/refine.hpp"

namespace parsim::strategies::hypergraph {

namespace {

/// The hypergraph for splitting `vertices` further. Elements from sources outside are received by
/// every part that reads them: a net among the readers. Parts from `middle` on count as part 1.
Hypergraph induced(const Hypergraph& graph, const std::vector<Vertex>& vertices, std::int32_t first,
                   std::int32_t middle, std::int32_t last) {
  Builder builder(graph.constraints);
  std::vector<Vertex> inside(at(graph.vertices), -1);
  const auto nc = at(graph.constraints);
  for (const Vertex v : vertices) {
    const std::int32_t fixed = graph.fixed_part(v);
    const bool here = fixed >= first && fixed < last;
    inside[at(v)] = builder.add_vertex(std::span(graph.weights).subspan(at(v) * nc, nc),
                                       here ? (fixed < middle ? 0 : 1) : -1);
  }
  for (std::size_t set = 0; set < graph.readers.size(); ++set) {
    std::vector<Vertex> readers;
    for (const Vertex v : graph.readers[set]) {
      if (inside[at(v)] >= 0) readers.push_back(inside[at(v)]);
    }
    if (readers.empty()) continue;
    std::vector<Source> sources;
    for (const Source& source : graph.sources[set]) {
      const Vertex here = inside[at(source.vertex)];
      sources.push_back({here >= 0 ? here : readers[0], source.cost});
    }
    builder.add_nets(sources, std::move(readers));
  }
  return builder.build();
}

class Partitioner {
 public:
  Partitioner(const Hypergraph& graph, const PartitionOptions& options)
      : graph_(graph),
        options_(options),
        limits_(limits_of(graph, options.parts, options.shares, options.tolerance)) {}

  Partition run() {
    for (const Parts& start : options_.starts) improve(start);
    if (options_.chains) {
      for (const Parts& chain : chain_starts()) improve(chain);
      if (auto whole = whole_layers()) improve(*whole);
    }
    if (found_.empty() && options_.restarts == 0) improve(Parts(at(graph_.vertices), 0));
    bool hopeless = false;
    for (std::int32_t r = 0; r < options_.bisections && options_.parts > 2 && !hopeless; ++r) {
      Parts parts(at(graph_.vertices), 0);
      std::vector<Vertex> all(at(graph_.vertices));
      std::iota(all.begin(), all.end(), 0);
      std::int64_t cost = 0;
      bisect(all, 0, options_.parts, static_cast<std::uint64_t>(r), parts, cost);
      hopeless = cost > most_cost();
      if (!hopeless) improve(parts);
    }
    for (std::int32_t r = 0; r < options_.restarts && !hopeless; ++r)
      from_scratch(static_cast<std::uint64_t>(r));
    for (std::int32_t r = 0; r < options_.recombinations && found_.size() > 1; ++r)
      recombine(static_cast<std::uint64_t>(r));
    for (std::uint64_t round = 0; round < 3; ++round) {
      const Partition before = found_[0];
      cycle(before.parts, 1000 + round, before.parts);
      if (found_[0] == before) break;
    }
    return found_[0];
  }

 private:
  [[nodiscard]] Random random(std::uint64_t stream) const {
    Random mixed(options_.seed);
    return Random(mixed.next() + stream * splitmix64_step);
  }
  [[nodiscard]] static bool better(const Partition& a, const Partition& b) {
    return a.overload != b.overload ? a.overload < b.overload : a.cost < b.cost;
  }
  /// Keeps the few best different partitions, best first.
  void keep(Parts parts) {
    Partition candidate = evaluated(graph_, std::move(parts), options_);
    const auto position = std::find_if(found_.begin(), found_.end(), [&](const Partition& known) {
      return better(candidate, known);
    });
    const bool known = std::any_of(found_.begin(), found_.end(), [&](const Partition& other) {
      return other.cost == candidate.cost && other.overload == candidate.overload;
    });
    if (known) return;
    found_.insert(position, std::move(candidate));
    constexpr std::size_t most = 8;
    if (found_.size() > most) found_.pop_back();
  }
  [[nodiscard]] Parts refined(const Hypergraph& graph, Parts parts) const {
    Assignment assignment(graph, limits_, std::move(parts));
    if (assignment.overload() > 0) rebalance(graph, assignment, limits_);
    refine(graph, assignment, limits_, options_.patience);
    return assignment.parts();
  }
  [[nodiscard]] Parts with_fixed(Parts parts) const {
    for (Vertex v = 0; v < graph_.vertices; ++v) {
      if (graph_.fixed_part(v) >= 0) parts[at(v)] = graph_.fixed_part(v);
    }
    return parts;
  }
  void improve(const Parts& start) {
    const Parts legal = with_fixed(start);
    if (evaluated(graph_, legal, options_).balanced()) keep(legal);
    keep(refined(graph_, legal));
  }

  /// What partitions from scratch may cost: refinement does not halve what is not yet found to be
  /// better.
  [[nodiscard]] std::int64_t most_cost() const {
    constexpr std::int64_t far = 2;
    const bool known = !found_.empty() && found_[0].balanced();
    return known ? far * found_[0].cost : std::numeric_limits<std::int64_t>::max();
  }

  /// Splits `vertices` among the parts [first, last), half of them at a time, and adds what the
  /// splits cost; ends early, with parts that mean nothing, when that is more than most_cost().
  void bisect(const std::vector<Vertex>& vertices, std::int32_t first, std::int32_t last,
              std::uint64_t stream, Parts& parts, std::int64_t& cost) const {
    if (cost > most_cost()) return;
    if (last - first < 2 || vertices.empty()) {
      for (const Vertex v : vertices) parts[at(v)] = first;
      return;
    }
    const std::int32_t middle = first + (last - first) / 2;
    const Hypergraph part = induced(graph_, vertices, first, middle, last);
    PartitionOptions halves;
    for (const auto& [begin, end] : {std::pair{first, middle}, std::pair{middle, last}}) {
      for (std::int32_t c = 0; c < limits_.constraints; ++c) {
        double share = 0;
        for (std::int32_t p = begin; p < end; ++p)
          share +=
              static_cast<double>(std::max<std::int64_t>(1, limits_.caps[limits_.index(p, c)]));
        halves.shares.push_back(share);
      }
    }
    // The tolerance is spent evenly over the levels that are left.
    const double levels = std::ceil(std::log2(static_cast<double>(last - first)));
    halves.tolerance = std::pow(1 + options_.tolerance, 1 / levels) - 1;
    Random dice = random(300 + 64 * stream + static_cast<std::uint64_t>(first));
    halves.seed = dice.next();
    halves.restarts = 2;
    halves.recombinations = 1;
    halves.patience = options_.patience;
    const Partition found = partition(part, halves);
    cost += found.cost;
    std::vector<Vertex> left, right;
    for (std::size_t i = 0; i < vertices.size(); ++i)
      (found.parts[i] == 0 ? left : right).push_back(vertices[i]);
    bisect(left, first, middle, stream, parts, cost);
    bisect(right, middle, last, stream, parts, cost);
  }

  /// Contiguous ranges; unequal parts in the order of their capacity, largest or smallest first,
  /// and
  /// in a few random orders: the cheapest three.
  std::vector<Parts> chain_starts() {
    std::vector<std::int32_t> order(at(options_.parts));
    std::iota(order.begin(), order.end(), 0);
    const auto capacity = [&](std::int32_t p) { return limits_.caps[limits_.index(p, 0)]; };
    std::vector<std::vector<std::int32_t>> orders{order};
    const bool equal = std::all_of(order.begin(), order.end(),
                                   [&](std::int32_t p) { return capacity(p) == capacity(0); });
    if (!equal) {
      std::stable_sort(order.begin(), order.end(),
                       [&](std::int32_t a, std::int32_t b) { return capacity(a) < capacity(b); });
      orders.push_back(order);
      orders.emplace_back(order.rbegin(), order.rend());
      Random dice = random(500);
      for (int i = 0; i < 12 && options_.parts > 2; ++i) {
        dice.shuffle(order);
        orders.push_back(order);
      }
    }
    std::vector<std::pair<std::int64_t, Parts>> chains;
    const std::vector<std::vector<Vertex>> units = single_units(graph_);
    for (const auto& sequence : orders) {
      if (auto parts = cheapest_chain(graph_, limits_, units, sequence)) {
        const std::int64_t cost = connectivity_cost(graph_, *parts);
        chains.emplace_back(cost, std::move(*parts));
      }
    }
    std::stable_sort(chains.begin(), chains.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    constexpr std::size_t most = 3;
    std::vector<Parts> best;
    for (std::size_t i = 0; i < std::min(most, chains.size()); ++i)
      best.push_back(std::move(chains[i].second));
    return best;
  }

  /// A partition in which vertices that are alike stay together: pipelines find one by chains, but
  /// towers of grouped convolutions next to each other are no range of vertices.
  [[nodiscard]] std::optional<Parts> whole_layers() const {
    const Coarsening merged = merge_alike(graph_);
    constexpr std::int32_t most = 400;
    if (merged.graph.vertices == graph_.vertices || merged.graph.vertices > most)
      return std::nullopt;
    PartitionOptions options = options_;
    options.starts.clear();
    const Parts coarse = partition(merged.graph, options).parts;
    Parts parts;
    for (const Vertex c : merged.cluster) parts.push_back(coarse[at(c)]);
    return parts;
  }

  /// Coarsens with `labels`, takes the first partition from `initial` at the coarsest level, and
  /// refines while uncoarsening.
  template <class Initial>
  Parts multilevel(const CoarseningRules& rules, std::vector<std::int32_t> labels, Random& dice,
                   Initial initial) {
    std::vector<Coarsening> levels;
    while (true) {
      const Hypergraph& finer = levels.empty() ? graph_ : levels.back().graph;
      if (finer.vertices <= rules.vertices) break;
      Coarsening next = coarsen(finer, limits_, rules, labels, dice);
      if (next.graph.vertices > finer.vertices * 19 / 20) break;  // nothing fits together any more
      if (!labels.empty()) {
        std::vector<std::int32_t> coarse(at(next.graph.vertices));
        for (std::size_t v = 0; v < labels.size(); ++v) coarse[at(next.cluster[v])] = labels[v];
        labels = std::move(coarse);
      }
      levels.push_back(std::move(next));
    }
    Parts parts = initial(levels.empty() ? graph_ : levels.back().graph, levels);
    for (std::size_t level = levels.size(); level-- > 0;) {
      const Hypergraph& finer = level == 0 ? graph_ : levels[level - 1].graph;
      Parts projected(at(finer.vertices));
      for (std::size_t v = 0; v < projected.size(); ++v)
        projected[v] = parts[at(levels[level].cluster[v])];
      parts = refined(finer, std::move(projected));
    }
    return parts;
  }

  CoarseningRules rules(std::uint64_t index) const {
    CoarseningRules rules;
    rules.vertices = std::clamp(options_.parts * (index % 3 == 2 ? 8 : 16), 60, 400);
    rules.cap = index % 2 == 0 ? 1.5 : 3.0;
    rules.light_first = index % 4 < 2;
    return rules;
  }

  void from_scratch(std::uint64_t index) {
    Random dice = random(index);
    keep(multilevel(rules(index), {}, dice, [&](const Hypergraph& coarse, const auto&) {
      Parts best;
      double overload = 0;
      std::int64_t cost = 0;
      const auto consider = [&](Parts parts) {
        Assignment assignment(coarse, limits_, std::move(parts));
        if (assignment.overload() > 0) rebalance(coarse, assignment, limits_);
        refine(coarse, assignment, limits_, options_.patience);
        const bool first = best.empty();
        if (first || assignment.overload() < overload ||
            (assignment.overload() == overload && assignment.cost() < cost)) {
          best = assignment.parts();
          overload = assignment.overload();
          cost = assignment.cost();
        }
      };
      const int tries = std::clamp(1000 / std::max(1, coarse.vertices), 8, 40);
      for (int i = 0; i < tries; ++i) {
        consider(i % 4 == 3 ? random_parts(coarse, limits_, dice)
                            : grown_parts(coarse, limits_, dice));
      }
      return best;
    }));
  }

  /// Vertices that either of two partitions separates stay apart while coarsening, so that the
  /// better of them can be handed to the coarsest level.
  void recombine(std::uint64_t index) {
    Random dice = random(100 + index);
    const std::size_t a = dice.below(std::min<std::size_t>(found_.size(), 2));
    std::size_t b = dice.below(found_.size() - 1);
    if (b >= a) ++b;
    const Parts& best = better(found_[a], found_[b]) ? found_[a].parts : found_[b].parts;
    std::vector<std::int32_t> labels(best.size());
    for (std::size_t v = 0; v < labels.size(); ++v)
      labels[v] = found_[a].parts[v] * options_.parts + found_[b].parts[v];
    cycle(Parts(best), 200 + index, std::move(labels));
  }

  /// One V-cycle from `parts`: coarsening keeps vertices of different labels apart.
  void cycle(const Parts& parts, std::uint64_t stream, std::vector<std::int32_t> labels) {
    Random dice = random(stream);
    keep(multilevel(rules(stream), std::move(labels), dice,
                    [&](const Hypergraph& coarse, const std::vector<Coarsening>& levels) {
                      Parts at_level = parts;
                      for (const Coarsening& level : levels) {
                        Parts coarser(at(level.graph.vertices));
                        for (std::size_t v = 0; v < at_level.size(); ++v)
                          coarser[at(level.cluster[v])] = at_level[v];
                        at_level = std::move(coarser);
                      }
                      return refined(coarse, std::move(at_level));
                    }));
  }

  const Hypergraph& graph_;
  const PartitionOptions& options_;
  Limits limits_;
  std::vector<Partition> found_;  ///< best first
};

}  // namespace

Partition evaluated(const Hypergraph& graph, Parts parts, const PartitionOptions& options) {
  const Limits limits = limits_of(graph, options.parts, options.shares, options.tolerance);
  Partition result;
  result.cost = connectivity_cost(graph, parts);
  result.overload = overload(limits, part_weights(graph, parts, options.parts));
  result.imbalance = imbalance(graph, parts, options.parts, options.shares);
  result.parts = std::move(parts);
  return result;
}

Partition partition(const Hypergraph& graph, const PartitionOptions& options) {
  ensure(options.parts > 0, "a partition has at least one part");
  if (options.parts == 1 || graph.vertices == 0)
    return evaluated(graph, Parts(at(graph.vertices), 0), options);
  return Partitioner(graph, options).run();
}

}  // namespace parsim::strategies::hypergraph
