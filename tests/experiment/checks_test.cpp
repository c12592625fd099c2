#include "experiment/checks.hpp"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "core/dag_traffic.hpp"
#include "core/errors.hpp"
#include "sim/sim.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/program.hpp"

namespace parsim::experiment {
namespace {

using testing::dag_of;
using testing::NotedDag;
using testing::star_of;

/// A step of 3 ms that reaches all its bounds.
Bounds tight() {
  Bounds bounds;
  bounds.critical_path = Seconds{3e-3};
  bounds.busiest_device = Seconds{3e-3};
  bounds.busiest_link = Seconds{3e-3};
  bounds.chain = 10;
  bounds.asked = Bytes{1'000'000};
  bounds.delivered = 1e6;
  return bounds;
}

TEST_CASE("checks: a step that reaches its bounds holds, also 1 ns per operation below") {
  CHECK(check_bounds(tight(), Seconds{3e-3}) ==
        "self-checks passed: step ≥ critical path 3.00 ms, busiest device 3.00 ms, busiest link "
        "3.00 ms; 977 KiB delivered");
  CHECK_NOTHROW((void)check_bounds(tight(), Seconds{3e-3 - 10e-9}));
}

TEST_CASE("checks: what a server sends to itself is moved, crosses no link, and is reported") {
  const NotedDag noted = dag_of("t: transfer d0->d1 1MB; own: transfer d0->d0 500kB");
  const Cluster cluster = star_of(2, "1 GB/s", "1 us");
  Timeline timeline;
  timeline.spans.resize(noted.dag.size());
  timeline.hop_bytes.assign(2 * cluster.links.size(), 0.0);
  timeline.hop_bytes[Hop{LinkId{1}, true}.index()] = 1e6;
  const Bounds bounds = bounds_of(noted.dag, cluster, {Seconds{1e-3}, Seconds{1e-6}}, timeline);
  CHECK(bytes_moved(noted.dag) == Bytes{1'500'000});
  CHECK(bounds.asked == Bytes{1'000'000});
  CHECK(bounds.kept == Bytes{500'000});
  CHECK(check_bounds(bounds, Seconds{1e-3})
            .ends_with("; 977 KiB delivered, 488 KiB copied within servers"));
}

TEST_CASE("checks: without contention the busiest link is no bound, and the check says so") {
  Bounds bounds = tight();
  bounds.busiest_link = Seconds{4e-3};
  CHECK(check_bounds(bounds, Seconds{3e-3}, false) ==
        "self-checks passed: step ≥ critical path 3.00 ms, busiest device 3.00 ms; 977 KiB "
        "delivered (the busiest link, 4.00 ms, is no bound without contention)");
  bounds.critical_path = Seconds{4e-3};
  CHECK_THROWS_AS((void)check_bounds(bounds, Seconds{3e-3}, false), BrokenInvariant);
}

TEST_CASE("checks: a broken bound names both numbers") {
  Bounds bounds = tight();
  bounds.critical_path = Seconds{4e-3};
  CHECK_THROWS_WITH_AS((void)check_bounds(bounds, Seconds{3e-3}),
                       "the simulated step takes 0.003 s, less than the critical path, 0.004 s",
                       BrokenInvariant);
  bounds = tight();
  bounds.busiest_device = Seconds{4e-3};
  CHECK_THROWS_WITH_AS(
      (void)check_bounds(bounds, Seconds{3e-3}),
      "the simulated step takes 0.003 s, less than the work of the busiest device, 0.004 s",
      BrokenInvariant);
  bounds = tight();
  bounds.busiest_link = Seconds{4e-3};
  CHECK_THROWS_WITH_AS((void)check_bounds(bounds, Seconds{3e-3}),
                       "the simulated step takes 0.003 s, less than the bytes of the busiest link "
                       "over its rate, 0.004 s",
                       BrokenInvariant);
  bounds = tight();
  bounds.delivered = 1e6 + 10;
  CHECK_THROWS_WITH_AS((void)check_bounds(bounds, Seconds{3e-3}),
                       "links delivered 1000010 bytes, the plan asked for 1000000",
                       BrokenInvariant);
}

TEST_CASE("checks: 11 ns below a chain of 10 operations is too much") {
  Bounds bounds = tight();
  bounds.busiest_device = bounds.busiest_link = Seconds{};
  CHECK_THROWS_AS((void)check_bounds(bounds, Seconds{3e-3 - 14e-9}), BrokenInvariant);
}

TEST_CASE("checks: a collective of two devices takes its time, of one none") {
  const NotedDag noted = dag_of("all-reduce d0,d1 1MB; all-reduce d0,d1,d2 1MB; all-reduce d0 1MB");
  const Cluster cluster = star_of(3, "1 GB/s", "0 us");
  const auto cost = sim::make_constant_efficiency(cluster, {});
  const std::vector<Seconds> times = durations(noted.dag, cluster, *cost).times;
  // 2 (n - 1) messages of 1/n of a megabyte.
  CHECK(times.at(0).count() == testing::approx(1e-3));
  CHECK(times.at(1).count() == testing::approx(4e-3 / 3));
  CHECK(times.at(2) == Seconds{});
}

TEST_CASE("checks: the messages of a collective are rounded one by one") {
  const Cluster cluster = star_of(4, "1 GB/s", "1 us");
  const NotedDag noted = dag_of("a: compute d0 3us; c: all-gather d0,d1,d2,d3 1MB after a");
  Timeline timeline;
  timeline.spans.resize(noted.dag.size());
  const Bounds bounds = bounds_of(noted.dag, cluster, {Seconds{3e-6}, Seconds{1e-3}}, timeline);
  CHECK(bounds.chain == 1 + 2 * 4);
}

TEST_CASE("checks: bounds by hand for two kernels and a transfer") {
  // a (3 us on d0), then 1 MB over 1 GB/s links from d0 to d1 (1 ms, given), then c (4 us on d1),
  // beside b (5 us on d0).
  const NotedDag noted = dag_of(
      "a: compute d0 3us; b: compute d0 5us; t: transfer d0->d1 1MB after a; c: compute d1 "
      "4us after t");
  const Cluster cluster = star_of(2, "1 GB/s", "1 us");
  Timeline timeline;
  timeline.spans.resize(noted.dag.size());
  timeline.hop_bytes.assign(2 * cluster.links.size(), 0.0);
  // star_of: link i joins d_i and the switch, device first.
  timeline.hop_bytes[Hop{LinkId{0}, false}.index()] = 1e6;
  timeline.hop_bytes[Hop{LinkId{1}, true}.index()] = 1e6;
  const std::vector<Seconds> times = {Seconds{3e-6}, Seconds{5e-6}, Seconds{1e-3}, Seconds{4e-6}};
  const Bounds bounds = bounds_of(noted.dag, cluster, times, timeline);
  CHECK(bounds.critical_path.count() == testing::approx(1.007e-3).epsilon(1e-12));
  CHECK(bounds.chain == 3);
  CHECK(bounds.busiest_device.count() == testing::approx(8e-6).epsilon(1e-12));
  CHECK(bounds.busiest_link.count() == testing::approx(1e-3).epsilon(1e-12));
  CHECK(bounds.asked == Bytes{1'000'000});
  CHECK(bounds.delivered == 1e6);
}

TEST_CASE("checks: bytes are rounded once for each rail of a machine") {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"simulate", "--network", "mlp", "--cluster", "nvl72:2", "--strategy", "data"},
           {"collective", "all-reduce", "--cluster", "nvl72:2", "--sizes", "1KiB..4KiB"}}) {
    const testing::Finished run = testing::run_program(PARSIM_PROGRAM, words);
    CHECK_MESSAGE(run.exit_code == 0, run.err);
  }
}

TEST_CASE("checks: the least of a gather is what the slowest member must receive") {
  // 3 members hold 4 MB each: everyone receives 8 MB at 1 GB/s.
  const NotedDag noted = dag_of("g: all-gather d0,d1,d2 12MB");
  const Cluster cluster = star_of(3, "1 GB/s", "1 us");
  CHECK(least_collective(noted.dag, noted["g"], device_rates(cluster)).count() ==
        testing::approx(8e-3).epsilon(1e-12));
}

}  // namespace
}  // namespace parsim::experiment
