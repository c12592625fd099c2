#include "core/critical_chain.hpp"

#include <doctest/doctest.h>

#include "tests/support/list_scheduler.hpp"

namespace parsim {
TEST_CASE("critical chain: by hand, through predecessors and queues") {
  // Device 0 is busy for 3 s, then 2 s; device 1 for 1 s, then waits for device 0's first and works
  // 4 s: 0 to 3 to 7.
  ExecDag dag;
  const auto delay = [&](std::int32_t device, double seconds, std::vector<OpId> after) {
    return dag.add(Delay{DeviceId{device}, Seconds{seconds}}, after);
  };
  const OpId a = delay(0, 3, {});
  const OpId b = delay(0, 2, {});
  const OpId c = delay(1, 1, {});
  const OpId d = delay(1, 4, {a});
  std::vector<Seconds> times{Seconds{3}, Seconds{2}, Seconds{1}, Seconds{4}};
  Timeline timeline;
  timeline.spans = list_schedule(dag, times);
  CHECK(critical_chain(dag, timeline, 2) == std::vector<OpId>{a, d});
  // With 9 s the second on device 0 is the last, and the queue puts the first before it.
  times[b.index()] = Seconds{9};
  timeline.spans = list_schedule(dag, times);
  CHECK(critical_chain(dag, timeline, 2) == std::vector<OpId>{a, b});
  // With 5 s before d on its own device, d waits for c.
  times = {Seconds{3}, Seconds{2}, Seconds{5}, Seconds{4}};
  timeline.spans = list_schedule(dag, times);
  CHECK(critical_chain(dag, timeline, 2) == std::vector<OpId>{c, d});
  CHECK(critical_chain(ExecDag{}, Timeline{}, 2).empty());
}

TEST_CASE("critical chain: of two that end together the lower id was waited for, by hand") {
  // Devices 0 and 1 work 3 s each; what waits for both is named in either order.
  for (const bool reversed : {false, true}) {
    ExecDag dag;
    const auto delay = [&](std::int32_t device, double seconds, std::vector<OpId> after) {
      return dag.add(Delay{DeviceId{device}, Seconds{seconds}}, after);
    };
    const OpId a = delay(0, 3, {}), b = delay(1, 3, {});
    const OpId last = delay(2, 1, reversed ? std::vector{b, a} : std::vector{a, b});
    Timeline timeline;
    timeline.spans = list_schedule(dag, {Seconds{3}, Seconds{3}, Seconds{1}});
    CHECK(critical_chain(dag, timeline, 3) == std::vector<OpId>{a, last});
  }
}

}  // namespace parsim
