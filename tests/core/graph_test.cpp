// Flows and orders of plain graphs.
#include "core/graph.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <limits>

namespace parsim {
namespace {

struct Flow {
  std::size_t vertices = 2;
  std::vector<FlowLink> links;
};

Flow any_flow() {
  Flow flow;
  flow.vertices = *rc::gen::inRange<std::size_t>(2, 7);
  const int links = *rc::gen::inRange(0, 12);
  for (int i = 0; i < links; ++i) {
    const auto a = *rc::gen::inRange<std::size_t>(0, flow.vertices);
    const auto b = *rc::gen::inRange<std::size_t>(0, flow.vertices);
    if (a != b) flow.links.push_back({a, b, 0.1 * *rc::gen::inRange(0, 9)});
  }
  return flow;
}

/// From vertex 0 to vertex 1, by trying every set of vertices that has the one and not the other.
double smallest_cut(const Flow& flow) {
  double smallest = std::numeric_limits<double>::infinity();
  for (std::size_t set = 1; set < std::size_t{1} << flow.vertices; set += 4) {
    double cut = 0;
    for (const FlowLink& link : flow.links) {
      if ((set >> link.a & 1U) != (set >> link.b & 1U)) cut += link.capacity;
    }
    smallest = std::min(smallest, cut);
  }
  return smallest;
}

}  // namespace

TEST_CASE("graph: the largest flow is the smallest cut") {
  CHECK(maximum_flow(2, {}, 0, 1) == 0);
  CHECK(rc::check([] {
    const Flow flow = any_flow();
    const double most = maximum_flow(flow.vertices, flow.links, 0, 1);
    RC_ASSERT(std::abs(most - smallest_cut(flow)) < 1e-12);
  }));
}

TEST_CASE("graph: what is in order stays, what waits comes later, a cycle is named") {
  using Order = std::vector<std::size_t>;
  CHECK(topological_order({{}, {0}, {}, {2, 0}, {1}}).order == Order{0, 1, 2, 3, 4});
  CHECK(topological_order({{}, {3}, {0}, {2}}).order == Order{0, 2, 3, 1});
  CHECK(topological_order({}).order.empty());
  CHECK_FALSE(topological_order({{}, {3}, {0}, {2}}).on_cycle.has_value());
  CHECK(topological_order({{}, {2}, {1}, {2}}).on_cycle == 1);
}

}  // namespace parsim
