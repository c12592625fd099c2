#include "sim/fair_flows.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <cmath>
#include <limits>

#include "tests/sim/small_dags.hpp"
#include "tests/support/approx.hpp"

namespace parsim::sim {
namespace {

using namespace testing;

/// A flow that someone wants started.
struct Wish {
  double date = 0;
  std::size_t route = 0;
  std::int64_t bytes = 0;
};

/// Links with these rates; all that routes need of a cluster.
Cluster bare_links(const std::vector<double>& rates) {
  Cluster cluster;
  for (const double rate : rates) {
    cluster.links.push_back({"", Port{}, Port{}, BytesPerSecond{rate}, Seconds{}, -1});
  }
  return cluster;
}

Route over(const std::vector<int>& links) {
  Route route;
  for (const int link : links) route.hops.push_back({LinkId{link}, false});
  return route;
}

/// End dates by wish.
std::vector<double> ends_of(const Cluster& cluster, const std::vector<Route>& routes,
                            const std::vector<Wish>& wishes,
                            const std::vector<RateChange>& changes = {}) {
  std::vector<const Route*> addresses;
  for (const Route& route : routes) addresses.push_back(&route);
  std::vector<double> ends(wishes.size(), -1);
  FairFlows* engine = nullptr;
  FairFlows flows(
      cluster, addresses,
      [&](std::int64_t token) {
        const Wish& wish = wishes[static_cast<std::size_t>(token)];
        engine->start(wish.route, Bytes{wish.bytes}, token);
      },
      [&](std::int64_t token) { ends[static_cast<std::size_t>(token)] = engine->now().count(); },
      changes);
  engine = &flows;
  for (std::size_t i = 0; i < wishes.size(); ++i) {
    flows.wake_at(Seconds{wishes[i].date}, static_cast<std::int64_t>(i));
  }
  flows.run();
  return ends;
}

/// Max-min rates by progressive filling: all rates grow alike from zero until some link is full,
/// which fixes the rates of its flows. Negative for flows that do not run.
std::vector<double> rates_from_zero(const Cluster& cluster, const std::vector<Route>& routes,
                                    const std::vector<Wish>& wishes,
                                    const std::vector<bool>& runs) {
  std::vector<double> rates(wishes.size(), -1);
  std::vector<bool> open = runs;
  std::vector<double> left;
  for (const Link& link : cluster.links) left.push_back(link.rate.value);
  while (true) {
    std::vector<double> weight(left.size());
    for (std::size_t i = 0; i < wishes.size(); ++i) {
      if (!open[i]) continue;
      for (const Hop hop : routes[wishes[i].route].hops) weight[hop.link.index()] += 1;
    }
    double level = std::numeric_limits<double>::infinity();
    std::size_t full = left.size();
    for (std::size_t link = 0; link < left.size(); ++link) {
      if (weight[link] > 0 && left[link] / weight[link] < level) {
        level = left[link] / weight[link];
        full = link;
      }
    }
    if (full == left.size()) return rates;
    for (std::size_t i = 0; i < wishes.size(); ++i) {
      const std::vector<Hop>& hops = routes[wishes[i].route].hops;
      const bool stops =
          std::any_of(hops.begin(), hops.end(), [&](Hop hop) { return hop.link.index() == full; });
      if (!open[i] || !stops) continue;
      open[i] = false;
      rates[i] = level;
      for (const Hop hop : hops) left[hop.link.index()] -= level;
    }
  }
}

/// The same as ends_of with all rates anew at every event.
std::vector<double> ends_by_force(Cluster cluster, const std::vector<Route>& routes,
                                  const std::vector<Wish>& wishes,
                                  std::vector<RateChange> changes = {}) {
  constexpr double never = std::numeric_limits<double>::infinity();
  std::vector<double> ends(wishes.size(), -1), left;
  for (const Wish& wish : wishes) left.push_back(static_cast<double>(wish.bytes));
  std::vector<bool> runs(wishes.size()), begun(wishes.size());
  double now = 0;
  while (true) {
    const std::vector<double> rates = rates_from_zero(cluster, routes, wishes, runs);
    double next = never;
    for (std::size_t i = 0; i < wishes.size(); ++i) {
      if (!begun[i]) next = std::min(next, wishes[i].date);
      if (runs[i]) next = std::min(next, now + left[i] / rates[i]);
    }
    if (next == never) return ends;
    if (!changes.empty()) next = std::min(next, changes.front().date.count());
    for (std::size_t i = 0; i < wishes.size(); ++i) {
      if (runs[i] && now + left[i] / rates[i] <= next * (1 + 1e-13)) {
        runs[i] = false;
        ends[i] = next;
      } else if (runs[i]) {
        left[i] -= rates[i] * (next - now);
      }
    }
    now = next;
    for (; !changes.empty() && changes.front().date.count() <= now;
         changes.erase(changes.begin())) {
      cluster.links[changes.front().link.index()].rate = changes.front().rate;
    }
    for (std::size_t i = 0; i < wishes.size(); ++i) {
      if (begun[i] || wishes[i].date > now) continue;
      begun[i] = true;
      runs[i] = wishes[i].bytes > 0;
      if (!runs[i]) ends[i] = now;
    }
  }
}

TEST_CASE("fair flows: by hand, a narrow link leaves what it does not use to others") {
  // Flows a: links 0 and 1, b: link 0, c: link 1. Link 0 carries 10, link 1 carries 4. The level
  // rises to 2, where link 1 is full: a and c have 2, b the other 8 of link 0.
  //   a   40 bytes   2 until c is done at 10; then 4 of link 1: 20 more in 5: ends at 15
  //   b  160 bytes   8 until 10, then 6 until 15: 80 + 30; the last 50 at 10: ends at 20
  //   c   20 bytes   2: ends at 10
  const Cluster cluster = bare_links({10, 4});
  CHECK(ends_of(cluster, {over({0, 1}), over({0}), over({1})},
                {{0, 0, 40}, {0, 1, 160}, {0, 2, 20}}) == std::vector<double>{15, 20, 10});
}

TEST_CASE("fair flows: a route that crosses a link twice takes twice its rate") {
  // Alone 30 bytes at 5. With a flow that crosses once, both go at 10/3.
  const Cluster cluster = bare_links({10});
  CHECK(ends_of(cluster, {over({0, 0})}, {{0, 0, 30}}) == std::vector<double>{6});
  const std::vector<double> both =
      ends_of(cluster, {over({0, 0}), over({0})}, {{0, 0, 10}, {0, 1, 10}});
  CHECK(both[0] == testing::approx(3));
  CHECK(both[1] == testing::approx(3));
}

TEST_CASE("fair flows: nothing to carry takes no time, and a date that is past comes at once") {
  const Cluster cluster = bare_links({10});
  CHECK(ends_of(cluster, {over({0})}, {{2, 0, 0}, {-1, 0, 10}}) == std::vector<double>{2, 1});
}

TEST_CASE("fair flows: by hand, a link that is slow for a while") {
  // Link 0 carries 10, from 2 to 6 only 5. a alone: 20 bytes until 2, 20 until 6, 10 more: 7.
  // With b, which link 1 keeps at 4: a has 6 until 2, then 2.5 each until 6 ...
  //   a   12 + 10 = 22 at 6, then 6: the last 28 in 14/3
  //   b    8 + 10 = 18 at 6, then 4: the last 12 in 3: ends at 9. a has 40 then, and 10 from there.
  const Cluster cluster = bare_links({10, 4});
  const std::vector<RateChange> slow = {{Seconds{2}, LinkId{0}, BytesPerSecond{5}},
                                        {Seconds{6}, LinkId{0}, BytesPerSecond{10}}};
  CHECK(ends_of(cluster, {over({0})}, {{0, 0, 50}}, slow) == std::vector<double>{7});
  CHECK(ends_of(cluster, {over({0}), over({0, 1})}, {{0, 0, 50}, {0, 1, 30}}, slow) ==
        std::vector<double>{10, 9});
}

TEST_CASE("fair flows: random flows end when filling all rates from zero at every event says") {
  CHECK(rc::check([] {
    const int links = *rc::gen::inRange(1, 9);
    std::vector<double> rates;
    for (int i = 0; i < links; ++i) rates.push_back(*rc::gen::inRange(1, 30));
    std::vector<Route> routes;
    for (int i = *rc::gen::inRange(1, 9); i > 0; --i) {
      std::vector<int> crossed;
      for (int k = *rc::gen::inRange(1, 5); k > 0; --k) {
        crossed.push_back(*rc::gen::inRange(0, links));
      }
      routes.push_back(over(crossed));
    }
    std::vector<Wish> wishes;
    for (int i = *rc::gen::inRange(1, 40); i > 0; --i) {
      wishes.push_back({0.5 * *rc::gen::inRange(0, 60),
                        static_cast<std::size_t>(*rc::gen::inRange<std::size_t>(0, routes.size())),
                        *rc::gen::inRange(0, 200)});
    }
    const Cluster cluster = bare_links(rates);
    const std::vector<double> fast = ends_of(cluster, routes, wishes);
    const std::vector<double> slow = ends_by_force(cluster, routes, wishes);
    for (std::size_t i = 0; i < wishes.size(); ++i) {
      RC_ASSERT(std::abs(fast[i] - slow[i]) <= 1e-9 * slow[i]);
    }
    RC_ASSERT(ends_of(cluster, routes, wishes) == fast);  // to the bit
    // The same with rates that change.
    std::vector<RateChange> changes;
    double date = 0;
    for (int i = *rc::gen::inRange(1, 9); i > 0; --i) {
      date += 0.5 * *rc::gen::inRange(0, 9);
      changes.push_back({Seconds{date}, LinkId{*rc::gen::inRange(0, links)},
                         BytesPerSecond{0.5 * *rc::gen::inRange(1, 60)}});
    }
    const std::vector<double> quick = ends_of(cluster, routes, wishes, changes);
    const std::vector<double> forced = ends_by_force(cluster, routes, wishes, changes);
    for (std::size_t i = 0; i < wishes.size(); ++i) {
      RC_ASSERT(std::abs(quick[i] - forced[i]) <= 1e-9 * forced[i]);
    }
    RC_ASSERT(ends_of(cluster, routes, wishes, changes) == quick);  // to the bit
  }));
}

}  // namespace
}  // namespace parsim::sim
