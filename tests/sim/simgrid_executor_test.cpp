#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <map>

#include "core/dag_traffic.hpp"
#include "core/errors.hpp"
#include "tests/sim/small_dags.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/list_scheduler.hpp"

namespace parsim::sim {
namespace {

using namespace testing;
using namespace std::chrono_literals;

constexpr std::int64_t megabyte = 1'000'000;

TEST_CASE("executor: a transfer takes latency plus bytes over rate, small and long or large") {
  // Also the guard of the settings: with SimGrid's own (LV08, a TCP window) the first is 12.8 times
  // too long and the second 2.26 times.
  for (const auto& [bytes, latency] : {std::pair{std::int64_t{100'000}, 10e-6},
                                       {1000 * megabyte, 10e-6},
                                       {1000 * megabyte, 2e-6}}) {
    const Cluster cluster = star({450e9, 450e9}, Seconds{latency / 2});
    ExecDag dag = bare_dag();
    const OpId op = add_transfer(dag, 0, 1, bytes);
    const Timeline timeline = simulate(cluster, dag);
    CHECK(difference(length(timeline, op), Seconds{latency + static_cast<double>(bytes) / 450e9}) <
          1e-6);
    CHECK(timeline.spans[0].start == 0s);
  }
}

TEST_CASE("executor: two flows share a link, and the second has it alone when the first is done") {
  // Into gpu2 at 10 GB/s: 100 MB and 200 MB. Both at 5 GB/s until 20 ms ... the first ends at
  // 200 MB / 10 GB/s = 20 ms, the other at 300 MB / 10 GB/s = 30 ms.
  const Cluster cluster = star({100e9, 100e9, 10e9}, 0s);
  ExecDag dag = bare_dag();
  const OpId small = add_transfer(dag, 0, 2, 100 * megabyte, {}, Stream::tensor);
  const OpId large = add_transfer(dag, 1, 2, 200 * megabyte, {}, Stream::pipeline);
  const Timeline timeline = simulate(cluster, dag);
  CHECK(length(timeline, small).count() == testing::approx(0.020).epsilon(1e-9));
  CHECK(length(timeline, large).count() == testing::approx(0.030).epsilon(1e-9));
}

TEST_CASE("executor: a link carries its rate in both directions at once, without cross traffic") {
  const Cluster cluster = star({10e9, 10e9}, 0s);
  ExecDag dag = bare_dag();
  const OpId there = add_transfer(dag, 0, 1, 100 * megabyte);
  const OpId back = add_transfer(dag, 1, 0, 100 * megabyte);
  const Timeline timeline = simulate(cluster, dag);
  CHECK(length(timeline, there).count() == testing::approx(0.010).epsilon(1e-9));
  CHECK(length(timeline, back).count() == testing::approx(0.010).epsilon(1e-9));
  // Hop 0 is gpu0 to the switch, hop 1 the switch to gpu0, 2 and 3 gpu1's.
  CHECK(timeline.hop_bytes == std::vector<double>{100e6, 100e6, 100e6, 100e6});
}

TEST_CASE("executor: a share of a link does not depend on a flow's latency") {
  // SimGrid shares inversely to latency if a link has any: 5 us against 1 us would get a fifth.
  Cluster cluster = star({10e9, 10e9, 10e9}, 1us);
  cluster.links[1].latency = 9us;
  ExecDag dag = bare_dag();
  const OpId near = add_transfer(dag, 0, 2, 1000 * megabyte, {}, Stream::tensor);
  const OpId far = add_transfer(dag, 1, 2, 1000 * megabyte, {}, Stream::pipeline);
  const Timeline timeline = simulate(cluster, dag);
  // The near one starts 8 us earlier and has the link alone that long; then both share it.
  CHECK(length(timeline, near).count() == testing::approx(2e-6 + 0.2 - 8e-6).epsilon(1e-9));
  CHECK(length(timeline, far).count() == testing::approx(2e-6 + 0.2).epsilon(1e-9));
}

TEST_CASE("executor: queues are in order, senders and receivers do not wait for each other") {
  const Cluster cluster = star({10e9, 10e9, 10e9}, 0s);
  ExecDag dag = bare_dag();
  const OpId late = add_delay(dag, 0, 5ms);
  const OpId first =
      add_transfer(dag, 0, 1, 10 * megabyte, {late});          // waits for the delay: 5 to 6 ms
  const OpId second = add_transfer(dag, 0, 2, 10 * megabyte);  // behind it in gpu0's queue
  const OpId other = add_transfer(dag, 2, 0, 10 * megabyte);   // gpu0 receives meanwhile
  const Timeline timeline = simulate(cluster, dag);
  const auto at = [&](OpId id) { return timeline.spans[id.index()]; };
  CHECK(at(first).start == 5ms);
  CHECK(at(second).start == at(first).end);
  CHECK(at(second).start.count() == testing::approx(0.006).epsilon(1e-9));
  CHECK(at(other).start == 0s);
  CHECK(at(other).end.count() == testing::approx(0.001).epsilon(1e-9));
}

TEST_CASE("executor: on one device a step takes the sum of its kernels") {
  const Cluster cluster = star({1e9}, 0s);
  ExecDag dag = bare_dag();
  for (int i = 1; i <= 100; ++i) add_delay(dag, 0, i * 1us);
  const OpId copy = add_transfer(dag, 0, 0, 10 * megabyte);  // inside the device: read and written
  add_collective(dag, CollectiveKind::all_reduce, devices(0, 1), {megabyte});
  const Timeline timeline = simulate(cluster, dag);
  CHECK(makespan(timeline).count() == testing::approx(100 * 101 * 1e-6 / 2).epsilon(1e-12));
  CHECK(length(timeline, copy).count() == testing::approx(20e-6).epsilon(1e-12));
  CHECK(length(timeline, OpId{101}) == 0s);
  CHECK(timeline.hop_bytes == std::vector<double>{0, 0});
}

TEST_CASE("executor: nothing takes no time, and an empty transfer its latency") {
  const Cluster cluster = star({1e9, 1e9}, 3us);
  CHECK(simulate(cluster, bare_dag()) == Timeline{{}, {0, 0, 0, 0}});
  ExecDag dag = bare_dag();
  const OpId empty = add_transfer(dag, 0, 1, 0);
  CHECK(length(simulate(cluster, dag), empty).count() == testing::approx(6e-6).epsilon(1e-9));
}

/// Kernels, transfers and collectives of one stream on a star: each device's queues keep its two
/// directions from ever carrying two flows, so nothing is shared.
ExecDag random_dag(int count) {
  const int size = *rc::gen::inRange(1, 40);
  ExecDag dag = bare_dag();
  for (int i = 0; i < size; ++i) {
    std::vector<OpId> after;
    for (int k = *rc::gen::inRange(0, 3); k > 0 && i > 0; --k) {
      after.emplace_back(*rc::gen::inRange(0, i));
    }
    const auto bytes = std::int64_t{2} * *rc::gen::inRange(0, 5'000'000);
    const int a = *rc::gen::inRange(0, count), b = *rc::gen::inRange(0, count);
    switch (*rc::gen::inRange(0, 4)) {
      case 0:
        add_transfer(dag, a, b, bytes, after, Stream::gradient);
        break;
      case 1: {
        const int members = *rc::gen::inRange(1, count - a + 1);
        const auto kind =
            *rc::gen::element(CollectiveKind::all_reduce, CollectiveKind::all_gather,
                              CollectiveKind::reduce_scatter, CollectiveKind::broadcast);
        // Shares of whole bytes, so that the closed form's equal chunks are the same.
        add_collective(dag, kind, devices(a, members),
                       std::vector<std::int64_t>(static_cast<std::size_t>(members), bytes), after);
        break;
      }
      default:
        add_delay(dag, a, *rc::gen::inRange(0, 1000) * 1us, after);
    }
  }
  return dag;
}

/// Operations on the longest chain of waiting, queues included.
std::size_t longest_chain(const ExecDag& dag) {
  std::map<Queue, std::size_t> last;
  std::vector<std::size_t> depth(dag.size(), 1);
  std::vector<Queue> occupied;
  std::size_t longest = 0;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    for (const OpId id : dag.predecessors(OpId{i})) {
      depth[i] = std::max(depth[i], depth[id.index()] + 1);
    }
    queues(dag, OpId{i}, occupied);
    for (const Queue& queue : occupied) depth[i] = std::max(depth[i], last[queue] + 1);
    for (const Queue& queue : occupied) last[queue] = depth[i];
    longest = std::max(longest, depth[i]);
  }
  return longest;
}

TEST_CASE("executor: without contention it is the list scheduler, to 1 ns per operation") {
  const Cluster cluster = star(std::vector<double>(5, 10e9), 1us);
  const SimpleCost cost(cluster);
  const auto executor = make_simgrid_executor(cluster, cost, {});
  CHECK(rc::check([&] {
    const ExecDag dag = random_dag(5);
    const std::vector<Span> expected = list_schedule(dag, durations_alone(dag, cost));
    const Timeline timeline = executor->run(dag);
    const double tolerance = 1e-9 * static_cast<double>(longest_chain(dag));
    for (std::size_t i = 0; i < dag.size(); ++i) {
      RC_ASSERT(std::abs((timeline.spans[i].start - expected[i].start).count()) <= tolerance);
      RC_ASSERT(std::abs((timeline.spans[i].end - expected[i].end).count()) <= tolerance);
    }
  }));
}

/// Crossing flows of three streams, uneven links.
ExecDag crowded_dag(const std::vector<int>& device) {
  ExecDag dag = bare_dag();
  const auto on = [&](int i) { return device[static_cast<std::size_t>(i)]; };
  std::vector<OpId> ends;
  for (int i = 0; i < 6; ++i) {
    const OpId kernel = add_delay(dag, on(i), (i + 1) * 100us);
    ends.push_back(add_transfer(dag, on(i), on((i + 1) % 6), (i + 3) * megabyte, {kernel}));
    ends.push_back(add_transfer(dag, on(i), on((i + 2) % 6), 2 * megabyte + 2 * i, {kernel},
                                Stream::pipeline));
  }
  const OpId sum = add_delay(dag, on(0), 1ms, ends);
  add_transfer(dag, on(0), on(5), 8 * megabyte, {sum});
  return dag;
}

TEST_CASE("executor: the same run gives the same bits, whatever ran before") {
  const Cluster cluster = star({10e9, 9e9, 8e9, 7e9, 6e9, 5e9}, 1us);
  const SimpleCost cost(cluster);
  const ExecDag dag = crowded_dag({0, 1, 2, 3, 4, 5});
  const auto executor = make_simgrid_executor(cluster, cost, {});
  const Timeline once = executor->run(dag);
  CHECK(executor->run(dag) == once);
  CHECK(simulate(star({1e9, 1e9}, 1us), bare_dag()).spans.empty());
  CHECK(make_simgrid_executor(cluster, cost, {})->run(dag) == once);
}

TEST_CASE("executor: the order of devices does not matter") {
  const std::vector<double> rates{10e9, 9e9, 8e9, 7e9, 6e9, 5e9};
  const Timeline straight = simulate(star(rates, 1us), crowded_dag({0, 1, 2, 3, 4, 5}));
  const std::vector<int> place{3, 5, 0, 4, 1, 2};  // device i is now number place[i]
  std::vector<double> moved(6);
  for (std::size_t i = 0; i < 6; ++i) moved[static_cast<std::size_t>(place[i])] = rates[i];
  const Timeline permuted = simulate(star(moved, 1us), crowded_dag(place));
  for (std::size_t i = 0; i < straight.spans.size(); ++i) {
    CHECK(permuted.spans[i].end.count() ==
          testing::approx(straight.spans[i].end.count()).epsilon(1e-9));
  }
}

TEST_CASE("executor: what can never start is named, with what it waits for") {
  const Cluster cluster = star({1e9, 1e9}, 0s);
  ExecDag dag = bare_dag();
  const OpId kernel = add_delay(dag, 0, 1us);
  const OpId transfer = add_transfer(dag, 0, 1, megabyte, {kernel});
  add_delay(dag, 1, 1us, {transfer});
  ExecDag::Tables tables = dag.tables();
  // `add` cannot say it, a file could: the first operation after the last.
  tables.predecessors = {OpId{2}, OpId{0}, OpId{1}};
  tables.records[0].first_predecessor = 0;
  tables.records[1].first_predecessor = 1;
  tables.records[2].first_predecessor = 2;
  CHECK_THROWS_WITH_AS(
      static_cast<void>(simulate(cluster, ExecDag::from_tables(tables))),
      "3 of 3 operations never ended: operation 0 (delay on 'gpu0') waits for operation 2 (delay "
      "on 'gpu1'); operation 1 (transfer from 'gpu0' to 'gpu1') waits for operation 0 (delay on "
      "'gpu0'); operation 2 (delay on 'gpu1') waits for operation 1 (transfer from 'gpu0' to "
      "'gpu1')",
      SimulationError);
}

TEST_CASE("executor: of many blocked operations five are named") {
  const Cluster cluster = star({1e9}, 0s);
  ExecDag dag = bare_dag();
  for (int i = 0; i < 7; ++i) add_delay(dag, 0, 1us);
  ExecDag::Tables tables = dag.tables();
  tables.predecessors = {OpId{6}};
  for (std::size_t i = 1; i < 7; ++i) tables.records[i].first_predecessor = 1;
  CHECK_THROWS_WITH_AS(
      static_cast<void>(simulate(cluster, ExecDag::from_tables(tables))),
      "7 of 7 operations never ended: operation 0 (delay on 'gpu0') waits for operation 6 (delay "
      "on 'gpu0'); operation 1 (delay on 'gpu0') waits for operation 0 (delay on 'gpu0'); "
      "operation 2 (delay on 'gpu0') waits for operation 1 (delay on 'gpu0'); operation 3 (delay "
      "on 'gpu0') waits for operation 2 (delay on 'gpu0'); operation 4 (delay on 'gpu0') waits for "
      "operation 3 (delay on 'gpu0'); and 2 more",
      SimulationError);
}

TEST_CASE("executor: reports can print SimGrid's settings") {
  CHECK(simgrid_settings() ==
        std::vector<std::string>{"network/model:CM02", "network/crosstraffic:0",
                                 "network/TCP-gamma:1e30", "network/optim:Lazy"});
  const std::string version = find_simgrid().version;
  const bool known = version.starts_with("3.") || version.starts_with("4.");
  CHECK_MESSAGE(known, version);
}

}  // namespace
}  // namespace parsim::sim
