#include "core/timeline.hpp"

#include <doctest/doctest.h>

#include "core/errors.hpp"
#include "tests/support/notation.hpp"

using namespace parsim;
using parsim::testing::dag_of;

namespace {

/// Times in whole seconds, which doubles add without rounding.
Timeline timeline_of(std::vector<std::pair<int, int>> spans) {
  Timeline timeline;
  for (const auto& [start, end] : spans) timeline.spans.push_back({Seconds(start), Seconds(end)});
  return timeline;
}

void check_use(const DeviceUse& use, int compute, int exposed, int idle) {
  CHECK(use.compute == Seconds(compute));
  CHECK(use.exposed_communication == Seconds(exposed));
  CHECK(use.idle == Seconds(idle));
}

}  // namespace

TEST_CASE("timeline: the makespan is the latest end, wherever it stands") {
  CHECK(makespan(timeline_of({{0, 3}, {1, 7}, {2, 5}})) == Seconds{7});
  CHECK(makespan(Timeline{}) == Seconds{0});
}

TEST_CASE("timeline: communication is exposed where no kernel of the device runs") {
  // d0: kernel 0-4, transfer 3-6: exposed 4-6.  d1: kernel 5-8, transfer 3-6: exposed 3-5.
  const auto noted = dag_of(R"(
    a: compute d0 4 s
    t: transfer d0->d1 4 B
    b: compute d1 3 s)");
  const std::vector<DeviceUse> use =
      device_use(noted.dag, timeline_of({{0, 4}, {3, 6}, {5, 8}}), 3);
  REQUIRE(use.size() == 3);
  check_use(use[0], 4, 2, 2);
  check_use(use[1], 3, 2, 3);
  check_use(use[2], 0, 0, 8);  // in no operation
}

TEST_CASE("timeline: a collective concerns every member and overlapping spans count once") {
  // Both collectives cover 2-9; the kernels of d0 cover 0-3 and 5-6.
  const auto noted = dag_of(R"(
    compute d0 3 s
    all-reduce d0,d2 8 B
    all-reduce d0,d2 8 B on tensor
    compute d0 1 s
    compute d0 1 s)");
  const std::vector<DeviceUse> use =
      device_use(noted.dag, timeline_of({{0, 3}, {2, 7}, {4, 9}, {5, 6}, {5, 6}}), 3);
  check_use(use[0], 4, 5, 0);
  check_use(use[1], 0, 0, 9);
  check_use(use[2], 0, 7, 2);
}

TEST_CASE("timeline: a message from a device to itself counts once") {
  const auto noted = dag_of("transfer d0->d0 4 B");
  check_use(device_use(noted.dag, timeline_of({{1, 3}}), 1)[0], 0, 2, 1);
}

TEST_CASE("timeline: a kernel in the middle of a message splits the exposed time") {
  const auto noted = dag_of("transfer d0->d1 4 B; compute d0 1 s; compute d0 1 s");
  check_use(device_use(noted.dag, timeline_of({{0, 10}, {2, 3}, {6, 7}}), 2)[0], 2, 8, 0);
}

TEST_CASE("timeline: operations that take no time are no use of a device") {
  const auto noted = dag_of("compute d0 0 s; transfer d0->d1 0 B; compute d1 1 s");
  const std::vector<DeviceUse> use =
      device_use(noted.dag, timeline_of({{0, 0}, {0, 0}, {0, 1}}), 2);
  check_use(use[0], 0, 0, 1);
  check_use(use[1], 1, 0, 0);
}

TEST_CASE("timeline: a timeline of another DAG is a bug of ours") {
  const auto noted = dag_of("compute d0 1 s; compute d3 1 s");
  CHECK_THROWS_AS(static_cast<void>(device_use(noted.dag, timeline_of({{0, 1}}), 4)),
                  BrokenInvariant);
  CHECK_THROWS_AS(static_cast<void>(device_use(noted.dag, timeline_of({{0, 1}, {0, 1}}), 3)),
                  BrokenInvariant);
}
