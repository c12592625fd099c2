// The search of the layer-wise strategy against brute force, on graphs of any shape.
#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <random>

#include "strategies/layer_wise/problem.hpp"

namespace parsim::strategies::layer_wise {

namespace {

/// Every choice, one after another; the sum is kept up while counting.
double brute_force(const Problem& problem) {
  const std::size_t nodes = problem.costs.size();
  std::vector<std::size_t> choice(nodes, 0);
  double least = std::numeric_limits<double>::infinity();
  while (true) {
    least = std::min(least, cost_of(problem, choice));
    std::size_t v = 0;
    while (v < nodes && ++choice[v] == problem.costs[v].size()) choice[v++] = 0;
    if (v == nodes) return least;
  }
}

using Pairs = std::vector<std::pair<std::size_t, std::size_t>>;

/// Costs are whole numbers, so that sums are exact and ties happen.
Problem random_costs(std::size_t nodes, const Pairs& edges, std::mt19937_64& random) {
  const auto number = [&](std::uint64_t below) { return static_cast<double>(random() % below); };
  Problem problem;
  for (std::size_t v = 0; v < nodes; ++v) {
    std::vector<double>& costs = problem.costs.emplace_back(1 + random() % 4);
    for (double& cost : costs) cost = number(50);
  }
  for (const auto& [from, to] : edges) {
    auto table = std::make_shared<Matrix>(problem.costs[from].size(), problem.costs[to].size());
    for (double& cost : table->values) cost = number(50);
    problem.edges.push_back({from, to, std::move(table)});
  }
  return problem;
}

/// A chain whose edges are replaced, again and again, by two in a row or two side by side.
Pairs series_parallel(std::size_t& nodes, std::mt19937_64& random) {
  Pairs edges{{0, 1}};
  nodes = 2;
  while (nodes < 8) {
    const std::size_t e = random() % edges.size();
    if (random() % 2 == 0) {
      edges.push_back(edges[e]);
    } else {
      edges.emplace_back(nodes, edges[e].second);
      edges[e].second = nodes++;
    }
  }
  return edges;
}

Pairs any_graph(std::size_t nodes, std::mt19937_64& random) {
  Pairs edges;
  for (std::size_t a = 0; a < nodes; ++a) {
    for (std::size_t b = a + 1; b < nodes; ++b) {
      if (random() % 2 == 0) edges.emplace_back(a, b);
    }
  }
  return edges;
}

}  // namespace

TEST_CASE("layer-wise search: where nothing costs anything every node keeps its first choice") {
  std::mt19937_64 random(4);
  Problem free = random_costs(4, {{0, 1}, {1, 2}, {0, 3}}, random);
  for (std::vector<double>& costs : free.costs) costs.assign(costs.size(), 0);
  for (Problem::Edge& edge : free.edges) {
    edge.cost = std::make_shared<Matrix>(edge.cost->rows, edge.cost->columns);
  }
  const Solution solution = solve(free);
  CHECK(solution.cost == 0);
  CHECK(solution.choice == std::vector<std::size_t>(4, 0));
}

TEST_CASE(
    "layer-wise search: series-parallel graphs reduce to two nodes and the optimum is brute "
    "force's") {
  std::mt19937_64 random(1);
  for (int i = 0; i < 60; ++i) {
    CAPTURE(i);
    std::size_t nodes = 0;
    const Pairs edges = series_parallel(nodes, random);
    const Problem problem = random_costs(nodes, edges, random);
    const Solution solution = solve(problem);
    CHECK(solution.exact);
    CHECK(solution.kernel == 2);
    CHECK(solution.cost == brute_force(problem));
    CHECK(cost_of(problem, solution.choice) == solution.cost);
  }
}

TEST_CASE(
    "layer-wise search: any graph, with or without the eliminations, has brute force's "
    "optimum") {
  std::mt19937_64 random(2);
  std::size_t stuck = 0;
  for (int i = 0; i < 60; ++i) {
    CAPTURE(i);
    const std::size_t nodes = 1 + random() % 7;
    const Problem problem = random_costs(nodes, any_graph(nodes, random), random);
    const double least = brute_force(problem);
    const Solution both = solve(problem);
    CHECK(both.exact);
    CHECK(both.cost == least);
    stuck += both.kernel > 2 ? 1 : 0;
    const Solution sets = solve_by_dependent_sets(problem);
    CHECK(sets.cost == least);
    CHECK(cost_of(problem, sets.choice) == least);
  }
  CHECK(stuck > 20);  // otherwise the eliminations alone were tested
}

TEST_CASE("layer-wise search: a graph too wide for the bound gets a good choice that says so") {
  std::mt19937_64 random(3);
  for (int i = 0; i < 20; ++i) {
    CAPTURE(i);
    const Problem problem = random_costs(7, any_graph(7, random), random);
    const Solution bounded = solve(problem, 1);
    CHECK_FALSE(bounded.exact);
    CHECK(bounded.cost >= brute_force(problem));
    CHECK(cost_of(problem, bounded.choice) == bounded.cost);
    // No single node can do better.
    const Solution descended = descend(problem);
    for (std::size_t v = 0; v < problem.costs.size(); ++v) {
      for (std::size_t c = 0; c < problem.costs[v].size(); ++c) {
        std::vector<std::size_t> other = descended.choice;
        other[v] = c;
        CHECK(cost_of(problem, other) >= descended.cost);
      }
    }
  }
}

TEST_CASE("layer-wise search: tables that would need too much memory are not made") {
  // Nine nodes of nine configurations, every two joined: 9^9 = 3.9e8 evaluations are within their
  // bound, but the first table has 9^8 = 4.3e7 entries.
  Problem problem;
  for (std::size_t v = 0; v < 9; ++v) {
    problem.costs.emplace_back(9, 1.0);
    problem.costs.back()[v] = 0;
    for (std::size_t u = 0; u < v; ++u)
      problem.edges.push_back({u, v, std::make_shared<Matrix>(9, 9, 1.0)});
  }
  const Solution solution = solve_by_dependent_sets(problem);
  CHECK_FALSE(solution.exact);
  CHECK(solution.widest == 9);
  CHECK(solution.cost == 36);  // all edges alike: every node's own least, and 36 edges
}

TEST_CASE("layer-wise search: a node elimination by hand") {
  // a - b - c with two configurations each; b's second is cheap to reach and to leave.
  Problem problem;
  problem.costs = {{0, 1}, {5, 1}, {0, 0}};
  auto ab = std::make_shared<Matrix>(2, 2, 2.0), bc = std::make_shared<Matrix>(2, 2, 3.0);
  (*ab)(1, 1) = 0;
  (*bc)(1, 0) = 0;
  problem.edges = {{0, 1, ab}, {1, 2, bc}};
  // a=1: 1, ab: 0, b=1: 1, bc: 0, c=0: 0. The next best keeps a=0: 0 + 2 + 1 + 0.
  const Solution solution = solve(problem);
  CHECK(solution.choice == std::vector<std::size_t>{1, 1, 0});
  CHECK(solution.cost == 2);
}

}  // namespace parsim::strategies::layer_wise
