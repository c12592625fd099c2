// The partitioner against brute force and its own definitions.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <optional>
#include <span>

#include "strategies/hypergraph/balance.hpp"
#include "strategies/hypergraph/coarsen.hpp"
#include "strategies/hypergraph/initial.hpp"
#include "strategies/hypergraph/partition.hpp"
#include "strategies/hypergraph/refine.hpp"
#include "tests/support/approx.hpp"

namespace parsim::strategies::hypergraph {
namespace {

Hypergraph random_graph(std::int32_t vertices, std::int32_t nets, std::int32_t constraints,
                        Random& random) {
  Builder builder(constraints);
  for (Vertex v = 0; v < vertices; ++v) {
    std::vector<std::int64_t> weights;
    for (std::int32_t c = 0; c < constraints; ++c)
      weights.push_back(static_cast<std::int64_t>(1 + random.below(5)));
    builder.add_vertex(weights);
  }
  const auto any = [&] {
    return static_cast<Vertex>(random.below(static_cast<std::size_t>(vertices)));
  };
  for (std::int32_t n = 0; n < nets; ++n) {
    std::vector<Vertex> readers;
    for (std::size_t i = 1 + random.below(3); i > 0; --i) readers.push_back(any());
    builder.add_net(any(), readers, static_cast<std::int64_t>(1 + random.below(9)));
  }
  return builder.build();
}

Parts random_labels(const Hypergraph& graph, std::int32_t parts, Random& random) {
  Parts labels;
  for (Vertex v = 0; v < graph.vertices; ++v)
    labels.push_back(static_cast<std::int32_t>(random.below(static_cast<std::size_t>(parts))));
  return labels;
}

/// The definition, pin by pin: Σ cost · (λ − 1).
std::int64_t cost_by_nets(const Hypergraph& graph, const Parts& parts) {
  std::int64_t cost = 0;
  for (std::size_t set = 0; set < graph.readers.size(); ++set) {
    for (const Source& source : graph.sources[set]) {
      std::vector<std::int32_t> touched{parts[static_cast<std::size_t>(source.vertex)]};
      for (const Vertex v : graph.readers[set])
        touched.push_back(parts[static_cast<std::size_t>(v)]);
      std::sort(touched.begin(), touched.end());
      const auto end = std::unique(touched.begin(), touched.end());
      cost += source.cost * (end - touched.begin() - 1);
    }
  }
  return cost;
}

/// Calls `visit` with every assignment of the vertices to parts.
template <class Visit>
void each_partition(const Hypergraph& graph, std::int32_t parts, Visit visit) {
  Parts labels(static_cast<std::size_t>(graph.vertices), 0);
  while (true) {
    visit(labels);
    std::size_t v = 0;
    while (v < labels.size() && ++labels[v] == parts) labels[v++] = 0;
    if (v == labels.size()) return;
  }
}

std::optional<std::int64_t> optimum(const Hypergraph& graph, const PartitionOptions& options) {
  std::optional<std::int64_t> least;
  const Limits limits = limits_of(graph, options.parts, options.shares, options.tolerance);
  each_partition(graph, options.parts, [&](const Parts& parts) {
    for (Vertex v = 0; v < graph.vertices; ++v) {
      if (graph.fixed_part(v) >= 0 && graph.fixed_part(v) != parts[static_cast<std::size_t>(v)])
        return;
    }
    if (overload(limits, part_weights(graph, parts, options.parts)) > 0) return;
    const std::int64_t cost = cost_by_nets(graph, parts);
    if (!least || cost < *least) least = cost;
  });
  return least;
}

}  // namespace

TEST_CASE("partitioner: the cost by hand") {
  // Net 0 -> {1, 2} of 5 words, net 1 -> {1, 2} of 7, net 2 -> {0} of 1.
  Builder builder(1);
  for (int v = 0; v < 3; ++v) builder.add_vertex(std::vector<std::int64_t>{1});
  builder.add_net(0, {2, 1, 2}, 5);
  builder.add_net(1, {1, 2}, 7);
  builder.add_net(2, {0}, 1);
  builder.add_net(2, {2}, 100);  // only itself
  const Hypergraph graph = builder.build();
  CHECK(graph.readers.size() == 2);  // the first two nets share their readers
  CHECK(connectivity_cost(graph, {0, 0, 0}) == 0);
  CHECK(connectivity_cost(graph, {0, 0, 1}) == 5 + 7 + 1);
  CHECK(connectivity_cost(graph, {0, 1, 2}) == 2 * 5 + 7 + 1);
  CHECK(connectivity_cost(graph, {0, 1, 1}) == 5 + 1);
}

TEST_CASE("partitioner: costs over shared sets of readers are those of the nets one by one") {
  Random random(7);
  for (int i = 0; i < 100; ++i) {
    const Hypergraph graph = random_graph(12, 30, 1, random);
    const Parts parts = random_labels(graph, 4, random);
    CHECK(connectivity_cost(graph, parts) == cost_by_nets(graph, parts));
  }
}

TEST_CASE("partitioner: gains are the differences of costs, and moves keep the sums") {
  Random random(11);
  for (int i = 0; i < 20; ++i) {
    const Hypergraph graph = random_graph(10, 20, 2, random);
    const Limits limits = limits_of(graph, 3, {3, 2, 1}, 0.1);
    Assignment now(graph, limits, random_labels(graph, 3, random));
    for (int moves = 0; moves < 30; ++moves) {
      const auto v = static_cast<Vertex>(random.below(10));
      std::vector<std::int64_t> gains;
      now.gains(v, gains);
      for (std::int32_t to = 0; to < 3; ++to) {
        Parts moved = now.parts();
        moved[static_cast<std::size_t>(v)] = to;
        CHECK(gains[static_cast<std::size_t>(to)] == now.cost() - cost_by_nets(graph, moved));
        const double added = overload(limits, part_weights(graph, moved, 3)) - now.overload();
        CHECK(std::abs(now.added_overload(v, to) - added) < 1e-12);
        CHECK((now.relieves(v) || now.added_overload(v, to) >= 0));
      }
      const auto from = now.part(v), to = static_cast<std::int32_t>(random.below(3));
      const std::int64_t gain = now.gain(v, to);
      now.move(v, to);
      CHECK(now.cost() == cost_by_nets(graph, now.parts()));
      now.move(v, from, -gain);
      CHECK(now.cost() == cost_by_nets(graph, now.parts()));
      now.move(v, to, gain);
      CHECK(now.cost() == cost_by_nets(graph, now.parts()));
    }
  }
}

TEST_CASE("partitioner: a coarser graph has the same costs and weights") {
  Random random(13);
  for (int i = 0; i < 20; ++i) {
    const Hypergraph graph = random_graph(40, 80, 2, random);
    const Limits limits = limits_of(graph, 2, {}, 0.05);
    const Coarsening coarse = coarsen(graph, limits, {10, 3, true}, {}, random);
    CHECK(coarse.graph.vertices < graph.vertices);
    CHECK(coarse.graph.total_weights() == graph.total_weights());
    const Parts parts = random_labels(coarse.graph, 3, random);
    Parts finer;
    for (const Vertex c : coarse.cluster) finer.push_back(parts[static_cast<std::size_t>(c)]);
    CHECK(connectivity_cost(coarse.graph, parts) == connectivity_cost(graph, finer));
  }
}

TEST_CASE("partitioner: the optimum of random instances of 9 vertices in 2 or 3 parts") {
  Random random(17);
  int feasible = 0;
  for (int i = 0; i < 40; ++i) {
    const Hypergraph graph = random_graph(9, 14, 1, random);
    PartitionOptions options;
    options.parts = i % 2 == 0 ? 2 : 3;
    options.tolerance = 0.1;
    options.seed = static_cast<std::uint64_t>(i);
    const auto least = optimum(graph, options);
    if (!least) continue;
    ++feasible;
    const Partition found = partition(graph, options);
    CHECK(found.balanced());
    CHECK(found.cost == *least);
  }
  CHECK(feasible > 30);
}

TEST_CASE("partitioner: the optimum with two constraints, unequal targets and fixed vertices") {
  Random random(19);
  int feasible = 0;
  for (int i = 0; i < 30; ++i) {
    Hypergraph graph = random_graph(9, 14, 2, random);
    graph.fixed.assign(9, -1);
    graph.fixed[3] = 1;
    graph.fixed[6] = 0;
    PartitionOptions options;
    options.shares = {3, 2, 2, 3};  // part 0: more of the first weight, less of the second
    options.tolerance = 0.25;
    const auto least = optimum(graph, options);
    if (!least) continue;
    ++feasible;
    const Partition found = partition(graph, options);
    CHECK(found.balanced());
    CHECK(found.parts[3] == 1);
    CHECK(found.parts[6] == 0);
    CHECK(found.cost == *least);
  }
  CHECK(feasible > 15);
}

TEST_CASE("partitioner: the cheapest chain equals trying every pair of borders") {
  Random random(23);
  int feasible = 0;
  for (int i = 0; i < 40; ++i) {
    const Hypergraph graph = random_graph(10, 20, 1, random);
    const Limits limits = limits_of(graph, 3, {2, 1, 1}, 0.2);
    std::optional<std::int64_t> least;
    for (std::size_t a = 0; a <= 10; ++a) {
      for (std::size_t b = a; b <= 10; ++b) {
        Parts parts(10, 1);  // in the order 2, 0, 1
        for (std::size_t v = 0; v < a; ++v) parts[v] = 2;
        for (std::size_t v = a; v < b; ++v) parts[v] = 0;
        if (overload(limits, part_weights(graph, parts, 3)) > 0) continue;
        const std::int64_t cost = cost_by_nets(graph, parts);
        if (!least || cost < *least) least = cost;
      }
    }
    const auto chain = cheapest_chain(graph, limits, single_units(graph), {2, 0, 1});
    CHECK(chain.has_value() == least.has_value());
    if (!chain || !least) continue;
    ++feasible;
    CHECK(cost_by_nets(graph, *chain) == *least);
    CHECK(overload(limits, part_weights(graph, *chain, 3)) == 0);
  }
  CHECK(feasible > 10);
}

TEST_CASE("partitioner: never more expensive than a balanced start, and the same for one seed") {
  Random random(29);
  const Hypergraph graph = random_graph(60, 120, 1, random);
  PartitionOptions options;
  options.parts = 4;
  options.tolerance = 0.2;
  options.restarts = options.recombinations = options.bisections = 0;
  options.chains = false;
  Parts start(60);
  for (std::size_t v = 0; v < 60; ++v) start[v] = static_cast<std::int32_t>(v / 15);
  options.starts = {start};
  const Partition given = evaluated(graph, start, options);
  REQUIRE(given.balanced());
  CHECK(partition(graph, options).cost < given.cost);
  options.restarts = options.recombinations = options.bisections = 1;
  CHECK(partition(graph, options) == partition(graph, options));
}

TEST_CASE("partitioner: what costs least for the overload that it removes leaves first, by hand") {
  // Part 0 has 10 more than it may: an anchor of weight 1 and vertices of its that read from it.
  const auto left = [](std::span<const std::array<std::int64_t, 2>> weights_and_costs,
                       bool at_home) {
    Builder builder(1);
    std::int64_t total = 1;
    const Vertex here = builder.add_vertex(std::array<std::int64_t, 1>{1}, 0);
    for (const auto& [weight, cost] : weights_and_costs) {
      builder.add_vertex(std::array<std::int64_t, 1>{weight});
      total += weight;
    }
    const Vertex there = builder.add_vertex(std::array<std::int64_t, 1>{1}, 1);
    Vertex reader = here;
    Parts parts{0};
    for (const auto& [weight, cost] : weights_and_costs) {
      builder.add_net(at_home ? here : there, {++reader}, cost);
      parts.push_back(0);
    }
    parts.push_back(1);
    const Hypergraph graph = builder.build();
    const Limits limits{2, 1, {total - 10, 2 * total}, {static_cast<double>(total + 1)}};
    Assignment assignment(graph, limits, parts);
    rebalance(graph, assignment, limits);
    CHECK(assignment.overload() == 0);
    return Parts(assignment.parts().begin() + 1, assignment.parts().end() - 1);
  };
  using Row = std::array<std::int64_t, 2>;
  // 6 for 10 of overload is less than 3 for 2, five times.
  CHECK(left(std::array{Row{2, 3}, Row{2, 3}, Row{2, 3}, Row{2, 3}, Row{2, 3}, Row{10, 6}}, true) ==
        Parts{0, 0, 0, 0, 0, 1});
  // Each brings 1 by going where what it reads is; one is enough.
  CHECK(left(std::array{Row{2, 1}, Row{10, 1}}, false) == Parts{0, 1});
}

TEST_CASE("partitioner: an impossible balance is reported, not hidden") {
  Builder builder(1);
  builder.add_vertex(std::vector<std::int64_t>{10});
  builder.add_vertex(std::vector<std::int64_t>{1});
  const Partition found = partition(builder.build(), {});
  CHECK_FALSE(found.balanced());
  CHECK(found.imbalance == testing::approx(10 / 5.5 - 1));
}

}  // namespace parsim::strategies::hypergraph
