// Hosts that issue one operation after another.
#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>
#include <vector>

#include "tests/sim/kernel_sketch.hpp"
#include "tests/support/approx.hpp"

namespace parsim::sim {
namespace {

using namespace testing;
using namespace std::chrono_literals;

TEST_CASE("launch: by hand, hosts run ahead of long kernels and hold up short ones") {
  const Cluster cluster = star({1e9, 1e9}, 0us);
  KernelSketch sketch;
  const auto kernel = [&](int device, Seconds time) {
    return sketch.kernel(device, Activity::memory, time);
  };
  const OpId a = kernel(0, 2us), b = kernel(0, 25us), c = kernel(0, 2us);  // issued at 0, 10, 20
  const OpId d = kernel(1, 2us);
  const OpId e = add_transfer(sketch.dag, 0, 1, 2000);  // 4th of gpu0, 2nd of gpu1
  const OpId f = kernel(1, 2us);
  for (const Engine engine : {Engine::simgrid, Engine::fast}) {
    const Timeline timeline = run_sketch(sketch, cluster, {}, engine, Fidelity::hops, 10us);
    const auto starts = [&](OpId id) { return timeline.spans[id.index()].start.count() * 1e6; };
    CHECK(starts(a) == 0);
    CHECK(starts(b) == testing::approx(10));
    CHECK(starts(c) == testing::approx(35));
    CHECK(starts(d) == 0);
    CHECK(starts(e) == testing::approx(30));
    CHECK(starts(f) == testing::approx(20));
    CHECK(makespan(timeline).count() == testing::approx(37e-6));
  }
}

TEST_CASE("launch: a step waits for its samples, and is as it was after that") {
  const Cluster cluster = star({1e9, 1e9}, 0us);
  KernelSketch sketch;
  sketch.kernel(0, Activity::memory, 2us);
  add_transfer(sketch.dag, 0, 1, 2000);
  sketch.kernel(1, Activity::memory, 5us);
  const Timeline alone = run_sketch(sketch, cluster, {}, Engine::fast);
  const SketchCost cost(sketch, cluster);
  const auto with_least = [&](Engine engine, Seconds least) {
    SimOptions options;
    options.engine = engine;
    options.input_rate = least > 0us ? 1 / least.count() : 0;
    sketch.dag.reads = {{1, 1}};
    return make_simulator(cluster, cost, options)->run(sketch.dag);
  };
  for (const Engine engine : {Engine::simgrid, Engine::fast}) {
    CHECK(with_least(engine, makespan(alone) / 2) == with_least(engine, 0us));
    const Timeline later = with_least(engine, 50us);
    CHECK(makespan(later).count() == testing::approx(50e-6));
    for (std::size_t i = 0; i < sketch.dag.size(); ++i) {
      CHECK(((later.spans[i].start - alone.spans[i].start) - (50us - makespan(alone))).count() ==
            testing::approx(0).scale(1e-6));
    }
  }
}

TEST_CASE("launch: an operation of several kernels ends with the last that the host launches") {
  KernelSketch sketch;
  const OpId first = sketch.kernel(0, Activity::memory, 2us);
  const OpId four = sketch.kernel(0, Activity::memory, 8us, {}, 4);     // launched at 10, …, 40
  const OpId none = sketch.kernel(0, Activity::memory, 1us, {}, 0);     // within another's kernel
  const OpId longer = sketch.kernel(0, Activity::memory, 90us, {}, 3);  // at 50, 60, 70
  const Timeline timeline =
      run_sketch(sketch, star({1e9}, 0us), {}, Engine::fast, Fidelity::hops, 10us);
  const auto ends = [&](OpId id) { return timeline.spans[id.index()].end.count() * 1e6; };
  CHECK(ends(first) == testing::approx(2));
  CHECK(ends(four) == testing::approx(42));
  CHECK(ends(none) == testing::approx(51));
  CHECK(ends(longer) == testing::approx(141));
}

// The twin runs a hundred steps, kernel by kernel, on a host that never waits.
TEST_CASE("launch: steps that follow one another take as long as the slower of host and device") {
  CHECK(rc::check([] {
    constexpr double interval = 10e-6;
    KernelSketch sketch;
    std::vector<std::pair<double, int>> operations;
    for (int i = *rc::gen::inRange(1, 12); i > 0; --i) {
      const int launches = *rc::gen::inRange(1, 5);
      const Seconds time = *rc::gen::inRange(1, 30) * launches * 1us;
      (void)sketch.kernel(0, Activity::memory, time, {}, launches);
      operations.emplace_back(time.count(), launches);
    }
    double host = 0, device = 0, before = 0;
    for (int step = 0; step < 100; ++step) {
      before = device;
      for (const auto& [time, launches] : operations) {
        for (int kernel = 0; kernel < launches; ++kernel) {
          device = std::max(device, host) + time / launches;
          host += interval;
        }
      }
    }
    const Timeline timeline = run_sketch(sketch, star({1e9}, 0us), {}, Engine::fast, Fidelity::hops,
                                         Seconds{interval}, true);
    RC_ASSERT(std::abs(makespan(timeline).count() / (device - before) - 1) < 1e-9);
  }));
}

TEST_CASE("launch: random operations start as if hosts were devices that do one delay for each") {
  CHECK(rc::check([] {
    constexpr int devices = 3;
    constexpr Seconds interval = 50us;
    const Cluster cluster = star(std::vector<double>(devices, 1e9), 1us);
    const Cluster with_hosts = star(std::vector<double>(2 * devices, 1e9), 1us);
    KernelSketch plain, hosted;
    std::vector<OpId> same;  // by operation: the hosted one
    std::array<int, devices> launches{};
    for (int i = *rc::gen::inRange(1, 25); i > 0; --i) {
      std::vector<OpId> after;
      if (!same.empty() && *rc::gen::inRange(0, 3) == 0) {
        after.emplace_back(*rc::gen::inRange(0, static_cast<int>(same.size())));
      }
      const int a = *rc::gen::inRange(0, devices), b = *rc::gen::inRange(0, devices);
      const auto activity = *rc::gen::element(Activity::tensor, Activity::memory);
      const Seconds time = *rc::gen::inRange(0, 120) * 1us;
      const auto bytes = std::int64_t{2} * *rc::gen::inRange(0, 50'000);
      const int what = *rc::gen::inRange(0, 4);
      std::vector<OpId> hosted_after;
      for (const OpId each : after) hosted_after.push_back(same[each.index()]);
      for (int device = 0; device < devices; ++device) {
        if (device != a && !(what == 1 && device == b) && what != 2) continue;
        const bool first = launches[static_cast<std::size_t>(device)]++ == 0;
        hosted_after.push_back(add_delay(hosted.dag, devices + device, first ? 0us : interval));
      }
      const auto add = [&](KernelSketch& sketch, const std::vector<OpId>& behind) {
        if (what == 1) return add_transfer(sketch.dag, a, b, bytes, behind);
        if (what == 2) {
          return add_collective(sketch.dag, CollectiveKind::all_reduce,
                                testing::devices(0, devices), {bytes}, behind);
        }
        return sketch.kernel(a, activity, time, behind);
      };
      (void)add(plain, after);
      same.push_back(add(hosted, hosted_after));
    }
    Slowdowns slowdowns;
    if (*rc::gen::inRange(0, 2) == 1) {
      slowdowns.interference.set(Activity::tensor, Activity::communication, 1.5);
      slowdowns.interference.set(Activity::communication, Activity::memory, 1.25);
    }
    const Timeline expected = run_sketch(hosted, with_hosts, slowdowns);
    const Timeline timeline =
        run_sketch(plain, cluster, slowdowns, Engine::fast, Fidelity::hops, interval);
    for (std::size_t i = 0; i < same.size(); ++i) {
      const Span& span = expected.spans[same[i].index()];
      RC_ASSERT(std::abs((timeline.spans[i].start - span.start).count()) <= 1e-12);
      RC_ASSERT(std::abs((timeline.spans[i].end - span.end).count()) <= 1e-12);
    }
    const int most = *std::max_element(launches.begin(), launches.end());
    RC_ASSERT(makespan(timeline) * (1 + 1e-12) >= (most - 1) * interval);
  }));
}

}  // namespace
}  // namespace parsim::sim
