// Successors of operations: those that wait for it, and the next ones in its queues.
#include "sim/prepared_dag.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "core/dag_traffic.hpp"
#include "core/random.hpp"
#include "tests/sim/small_dags.hpp"

namespace parsim::testing {
namespace {

/// Queue by queue.
std::vector<std::set<std::int32_t>> waits_by_queues(const ExecDag& dag) {
  std::vector<std::set<std::int32_t>> sources(dag.size());
  std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> last;
  std::vector<Queue> occupied;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    for (const OpId source : dag.predecessors(OpId{i})) sources[i].insert(source.value);
    queues(dag, OpId{i}, occupied);
    for (const Queue& queue : occupied) {
      const auto [at, fresh] =
          last.try_emplace({queue.device.value, queue.queue}, static_cast<std::int32_t>(i));
      if (!fresh && at->second != static_cast<std::int32_t>(i)) sources[i].insert(at->second);
      at->second = static_cast<std::int32_t>(i);
    }
  }
  return sources;
}

/// Collectives of a few groups, of which large ones often follow each other in a stream, with
/// transfers and delays between them.
ExecDag random_dag(Random& random, int device_count) {
  ExecDag dag = bare_dag();
  const std::vector<std::vector<DeviceId>> groups{devices(0, device_count), devices(0, 64),
                                                  devices(device_count - 64, 64), devices(3, 5)};
  const std::size_t size = 20 + random.below(40);
  for (std::size_t i = 0; i < size; ++i) {
    std::vector<OpId> after;
    if (i > 0 && random.below(3) == 0) after.emplace_back(random.below(i));
    const Stream stream = random.below(2) == 0 ? Stream::gradient : Stream::tensor;
    const int from = static_cast<int>(random.below(4)), to = static_cast<int>(random.below(90));
    switch (random.below(10)) {
      case 0:
        add_delay(dag, to, Seconds{1}, after);
        break;
      case 1:
        add_transfer(dag, from, to, 8, after, stream);
        break;
      default:
        add_collective(dag, CollectiveKind::all_reduce,
                       groups[random.below(3) > 0 ? 0 : random.below(groups.size())], {8}, after,
                       stream);
    }
  }
  return dag;
}

TEST_CASE("prepared DAG: operations wait for those before in each queue, groups large and small") {
  constexpr int device_count = 90;
  Random random(1);
  for (int i = 0; i < 200; ++i) {
    const ExecDag dag = random_dag(random, device_count);
    const sim::Successors found = sim::successors(dag, device_count);
    std::vector<std::vector<std::int32_t>> sources(dag.size());
    for (std::size_t op = 0; op < dag.size(); ++op) {
      for (const std::int32_t next : found.of(op))
        sources[static_cast<std::size_t>(next)].push_back(static_cast<std::int32_t>(op));
    }
    const std::vector<std::set<std::int32_t>> expected = waits_by_queues(dag);
    for (std::size_t op = 0; op < dag.size(); ++op) {
      CAPTURE(i);
      CAPTURE(op);
      CHECK(sources[op] == std::vector<std::int32_t>(expected[op].begin(), expected[op].end()));
      CHECK(found.waiting[op] == expected[op].size());
    }
  }
}

}  // namespace
}  // namespace parsim::testing
