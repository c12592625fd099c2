// Rounds that look at changes only find the classes of rounds that look at everything.
#include "sim/link_rounds.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/random.hpp"

namespace parsim::testing {
namespace {

using sim::Color;
using sim::Communication;
using sim::OpFlow;

/// Each one's number among the classes, by first members.
template <class Value>
std::vector<std::size_t> classes_of(const std::vector<Value>& values) {
  std::map<Value, std::size_t> known;
  std::vector<std::size_t> classes;
  for (const Value& value : values)
    classes.push_back(known.try_emplace(value, known.size()).first->second);
  return classes;
}

/// Flows round a ring of links and across it, a few lists of them.
struct Messages {
  sim::RouteTable table;
  sim::FlowLists lists;
  std::vector<Communication> communications;
  sim::RouteHops hops;
  std::vector<Color> links;

  explicit Messages(std::uint64_t seed) {
    Random random(seed);
    const std::size_t count = 2 * random.below(6) + 20;  // hops
    for (std::size_t i = 0; i < count; ++i) links.push_back(random.below(40) == 0 ? 1 : 2);
    for (std::size_t i = 0; i < 2 * count; ++i) {
      Route& route = table.whole_routes.emplace_back();
      const std::size_t first = random.below(40) > 0 ? i % count : random.below(count);
      const std::size_t hops = random.below(20) > 0 ? 2 : 1;
      for (std::size_t h = 0; h < hops; ++h) {
        const std::size_t hop = (first + h) % count;
        route.hops.push_back({LinkId{hop / 2}, hop % 2 == 1});
        this->hops.open.push_back(random.below(20) > 0);
      }
      this->hops.slowest.push_back(random.below(80) == 0 ? 1 : 2);
      table.routes.push_back(&route);
    }
    for (std::size_t i = 0; i < 4; ++i) {
      std::vector<OpFlow> flows;
      const std::size_t begin = random.below(2) * count;
      for (std::size_t r = 0; r < (i < 3 ? count : random.below(2)); ++r)
        flows.push_back({begin + r, Bytes{100 + (random.below(80) == 0 ? 1 : 0)}, Seconds{0}});
      const std::size_t list = lists.add(flows);
      for (std::size_t c = 0; c <= random.below(3); ++c)
        communications.push_back({OpId{communications.size()}, list, Seconds{0},
                                  Seconds{random.below(3) == 0 ? 1.0 : 0.0}, false});
    }
  }
};

/// A round by the definition: classes as numbers, multisets as sorted lists.
std::vector<std::size_t> round_of(const Messages& all, const std::vector<std::size_t>& links) {
  using Numbers = std::vector<std::size_t>;
  std::vector<Numbers> routes;
  for (std::size_t begin = 0; const Route* route : all.table.routes) {
    Numbers own;
    for (const Hop hop : route->hops) {
      if (all.hops.open[begin++]) own.push_back(links[hop.index()]);
    }
    std::sort(own.begin(), own.end());
    own.push_back(all.hops.slowest[routes.size()]);
    routes.push_back(own);
  }
  using Flow = std::pair<Numbers, std::int64_t>;
  std::vector<std::pair<std::vector<Flow>, double>> operations;
  for (const Communication& one : all.communications) {
    auto& [flows, least] = operations.emplace_back();
    least = one.least.count();
    for (const OpFlow& flow : all.lists.of(one.list))
      flows.emplace_back(routes[flow.route], flow.payload.value);
    std::sort(flows.begin(), flows.end());
  }
  const Numbers of_operations = classes_of(operations);
  std::vector<std::pair<std::size_t, std::vector<std::pair<std::size_t, Flow>>>> carried;
  for (const std::size_t link : links) carried.push_back({link, {}});
  for (std::size_t i = 0; i < all.communications.size(); ++i) {
    for (const OpFlow& flow : all.lists.of(all.communications[i].list)) {
      for (const Hop hop : all.table.routes[flow.route]->hops) {
        carried[hop.index()].second.push_back(
            {of_operations[i], {routes[flow.route], flow.payload.value}});
      }
    }
  }
  for (auto& [link, flows] : carried) std::sort(flows.begin(), flows.end());
  return classes_of(carried);
}

TEST_CASE("link rounds: the classes of each are those by the definition, on random messages") {
  std::size_t divided = 0, late = 0;
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    const Messages all(seed);
    std::vector<Color> links = all.links;
    std::vector<std::size_t> used;
    for (std::size_t i = 0; i < links.size(); ++i) used.push_back(i);
    sim::LinkRounds rounds(
        {all.table, all.lists, all.communications, all.hops, links.size(), used});
    std::vector<std::size_t> expected = classes_of(links);
    for (int round = 0; round < 8; ++round) {
      CAPTURE(round);
      const std::vector<std::size_t> before = expected;
      expected = round_of(all, before);
      rounds.refine(links);
      REQUIRE(classes_of(links) == classes_of(expected));
      if (classes_of(expected) == classes_of(before)) continue;
      ++divided;
      if (round > 1) ++late;
    }
  }
  CHECK(divided > 300);
  CHECK(late > 50);
}

}  // namespace
}  // namespace parsim::testing
