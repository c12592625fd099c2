#include "sim/pace.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>

#include "sim/kernels.hpp"
#include "sim/prepared_dag.hpp"
#include "strategies/lower.hpp"
#include "tests/sim/kernel_sketch.hpp"
#include "tests/support/list_scheduler.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/tiny_networks.hpp"

namespace parsim {
namespace {

using namespace testing;
using namespace std::chrono_literals;

constexpr Activity tensor = Activity::tensor, memory = Activity::memory,
                   communication = Activity::communication;

Interference factors(double kernels, double messages) {
  Interference interference;
  interference.set(tensor, communication, kernels);
  interference.set(communication, tensor, messages);
  return interference;
}

struct Ends {
  double kernel = 0, message = 0;  ///< ms
};

/// A kernel on gpu1, and from `date` on 2 MB from gpu0 to gpu1, which take 2 ms: the same in every
/// engine and fidelity.
Ends kernel_and_message(Activity activity, Seconds kernel, Seconds date,
                        const Interference& interference) {
  const Cluster cluster = star({1e9, 1e9}, 0us);
  KernelSketch sketch;
  const OpId one = sketch.kernel(1, activity, kernel);
  const OpId delay = add_delay(sketch.dag, 0, date);
  const OpId other = add_transfer(sketch.dag, 0, 1, 2'000'000, {delay});
  const auto ends = [&](Engine engine, Fidelity fidelity) {
    const Timeline timeline = run_sketch(sketch, cluster, {interference}, engine, fidelity);
    CHECK(timeline.spans[other.index()].start == date);
    return Ends{1e3 * timeline.spans[one.index()].end.count(),
                1e3 * timeline.spans[other.index()].end.count()};
  };
  const Ends first = ends(Engine::fast, Fidelity::hops);
  for (const Fidelity fidelity :
       {Fidelity::hops, Fidelity::p2p, Fidelity::macro, Fidelity::analytic}) {
    for (const Engine engine : {Engine::simgrid, Engine::fast}) {
      const Ends again = ends(engine, fidelity);
      CHECK(again.kernel == doctest::Approx(first.kernel).epsilon(1e-6));
      CHECK(again.message == doctest::Approx(first.message).epsilon(1e-6));
    }
  }
  return first;
}

TEST_CASE("pace: a kernel and a message that hold each other up, by hand") {
  // 2 ms of the 4 beside the message: 4/3 done, the other 8/3 alone.
  Ends ends = kernel_and_message(tensor, 4ms, 0ms, factors(1.5, 1));
  CHECK(ends.kernel == doctest::Approx(14.0 / 3));
  CHECK(ends.message == doctest::Approx(2));
  // From the middle on: 2 done, 4/3 beside the message, the last 2/3 alone.
  ends = kernel_and_message(tensor, 4ms, 2ms, factors(1.5, 1));
  CHECK(ends.kernel == doctest::Approx(14.0 / 3));
  CHECK(ends.message == doctest::Approx(4));
  // The message's clock: half of the first ms, then 1.5 more.
  ends = kernel_and_message(tensor, 1ms, 0ms, factors(1, 2));
  CHECK(ends.kernel == doctest::Approx(1));
  CHECK(ends.message == doctest::Approx(2.5));
  // Both: the kernel takes 1.5 ms; the message has 0.75 by then.
  ends = kernel_and_message(tensor, 1ms, 0ms, factors(1.5, 2));
  CHECK(ends.kernel == doctest::Approx(1.5));
  CHECK(ends.message == doctest::Approx(2.75));
  // Factors of other kernels.
  ends = kernel_and_message(memory, 1ms, 0ms, factors(1.5, 2));
  CHECK(ends.kernel == doctest::Approx(1));
  CHECK(ends.message == doctest::Approx(2));
}

TEST_CASE("pace: a message that others' flows delay anyway has time for its clock") {
  // Two messages share a link: 4 ms each, their clocks are through at 2.5. A kernel on a third
  // device holds nobody up, an update is memory, a delay is nothing.
  const Cluster cluster = star({1e9, 1e9, 1e9}, 0us);
  KernelSketch sketch;
  (void)sketch.kernel(1, tensor, 1ms);
  (void)sketch.kernel(2, tensor, 9ms);
  const OpId a = add_transfer(sketch.dag, 0, 1, 2'000'000);
  const OpId b = add_transfer(sketch.dag, 0, 1, 2'000'000, {}, Stream::pipeline);
  add_delay(sketch.dag, 1, 9ms);
  for (const Engine engine : {Engine::simgrid, Engine::fast}) {
    const Timeline timeline = run_sketch(sketch, cluster, {factors(1, 2)}, engine);
    for (const OpId id : {a, b}) {
      CHECK(timeline.spans[id.index()].end.count() == doctest::Approx(4e-3));
    }
  }
  CHECK(kernel_activity(sketch.dag, OpId{0}) == tensor);
  CHECK(kernel_activity(sketch.dag, a) == std::nullopt);
  CHECK(kernel_activity(sketch.dag, add_transfer(sketch.dag, 1, 1, 2)) == memory);
  CHECK(kernel_activity(sketch.dag, OpId{4}) == std::nullopt);
}

TEST_CASE("pace: tensor kernels are those that the model of kernels prices as products") {
  for (const Network& network : tiny_networks()) {
    const Plan plan = random_plan(network, 2, 8, 3);
    const ExecDag dag = lower(network, star_of(3, "10 GB/s", "1us"), plan);
    for (std::size_t i = 0; i < dag.size(); ++i) {
      if (dag.kind(OpId{i}) != OpKind::compute) continue;
      const OpRecord& record = dag.record(OpId{i});
      const WorkId work{record.what};
      const Kernels kernels = kernels_of(dag.network, dag.work(work).layer, dag.part(work),
                                         static_cast<Pass>(record.sub));
      const bool product = std::any_of(kernels.begin(), kernels.end(), [](const Kernel& kernel) {
        return kernel.kind != KernelClass::memory;
      });
      CAPTURE(network.name);
      CAPTURE(i);
      CHECK(kernel_activity(dag, OpId{i}) == (product ? tensor : memory));
    }
  }
}

/// Ends of a sketch whose messages only have a clock: the pace of all that runs anew at every
/// event.
std::vector<Span> anew_at_every_event(const KernelSketch& sketch, const Cluster& cluster,
                                      const Setting& setting) {
  const ExecDag& dag = sketch.dag;
  const std::vector<Seconds> alone = durations_alone(dag, SketchCost(sketch, cluster));
  Successors after = successors(dag, cluster.devices.size());
  std::vector<double> left;
  for (const Seconds each : alone) left.push_back(each.count());
  std::vector<bool> runs(dag.size());
  std::vector<Span> spans(dag.size(), Span{Seconds{0}, Seconds{-1}});
  double now = 0;
  for (std::size_t i = 0; i < dag.size(); ++i) runs[i] = after.waiting[i] == 0;
  const auto devices_of = [&](std::size_t i) {
    const OpRecord& record = dag.record(OpId{i});
    if (dag.kind(OpId{i}) == OpKind::collective) return dag.group(GroupId{record.device});
    return std::vector{DeviceId{record.device}, DeviceId{record.to}};
  };
  /// Seconds that a second of its time takes now.
  const auto pace_of = [&](std::size_t i) {
    double worst = 1;
    for (std::size_t k = 0; k < dag.size(); ++k) {
      if (!runs[k] || communicates(dag, OpId{i}) == communicates(dag, OpId{k})) continue;
      const bool message = communicates(dag, OpId{i});
      const std::size_t kernel = message ? k : i;
      const auto activity = kernel_activity(dag, OpId{kernel});
      const std::vector<DeviceId> met = devices_of(message ? i : k);
      const DeviceId device = kernel_device(dag, OpId{kernel});
      if (!activity || std::find(met.begin(), met.end(), device) == met.end()) continue;
      worst = std::max(worst, message ? setting.interference.of(communication, *activity)
                                      : setting.interference.of(*activity, communication));
    }
    const DeviceId device = kernel_device(dag, OpId{i});
    if (device.valid()) {
      for (const SlowPeriod& period : setting.slow.of(device).periods()) {
        if (period.from.count() <= now && now < period.to.count()) worst *= period.factor;
      }
    }
    return worst;
  };
  while (true) {
    double next = Pace::never.count();
    std::vector<double> paces(dag.size(), 1);
    for (std::size_t i = 0; i < dag.size(); ++i) {
      if (!runs[i]) continue;
      paces[i] = pace_of(i);
      next = std::min(next, now + left[i] * paces[i]);
    }
    if (next == Pace::never.count()) return spans;
    for (const Slow& slow : setting.slow.devices) {
      for (const SlowPeriod& period : slow.periods()) {
        for (const double change : {period.from.count(), period.to.count()}) {
          if (change > now) next = std::min(next, change);
        }
      }
    }
    std::vector<std::size_t> ended;
    for (std::size_t i = 0; i < dag.size(); ++i) {
      if (!runs[i]) continue;
      left[i] -= (next - now) / paces[i];
      if (left[i] <= 1e-14) ended.push_back(i);
    }
    now = next;
    for (const std::size_t i : ended) {
      runs[i] = false;
      spans[i].end = Seconds{now};
      for (const std::int32_t to : after.of(i)) {
        const auto successor = static_cast<std::size_t>(to);
        if (--after.waiting[successor] > 0) continue;
        runs[successor] = true;
        spans[successor].start = Seconds{now};
      }
    }
  }
}

Interference random_interference() {
  Interference interference;
  for (const InterferencePair& pair : interference_pairs) {
    interference.set(pair.activity, pair.beside, 1 + 0.125 * *rc::gen::inRange(0, 12));
  }
  return interference;
}

/// Up to five devices, each with up to two slow periods.
std::vector<Slow> random_slow(std::size_t devices) {
  std::vector<Slow> list;
  for (std::size_t i = 0; i < devices; ++i) {
    std::vector<SlowPeriod> periods;
    Seconds date{};
    for (int k = *rc::gen::inRange(-2, 3); k > 0; --k) {
      const Seconds from = date + *rc::gen::inRange(0, 3000) * 1us;
      date = from + *rc::gen::inRange(1, 3000) * 1us;
      periods.push_back({from, date, 1 + 0.5 * *rc::gen::inRange(1, 5)});
    }
    list.emplace_back(periods);
  }
  return list;
}

/// Kernels and messages, hardly ordered.
KernelSketch random_sketch(int devices) {
  KernelSketch sketch;
  ExecDag& dag = sketch.dag;
  for (int i = 0, size = *rc::gen::inRange(2, 30); i < size; ++i) {
    std::vector<OpId> after;
    if (i > 0 && *rc::gen::inRange(0, 3) == 0) after.emplace_back(*rc::gen::inRange(0, i));
    const int a = *rc::gen::inRange(0, devices), b = *rc::gen::inRange(0, devices);
    const auto bytes = std::int64_t{2} * *rc::gen::inRange(0, 1'000'000);
    const Seconds time = *rc::gen::inRange(0, 2000) * 1us;
    switch (*rc::gen::inRange(0, 6)) {
      case 0:
        add_collective(dag, CollectiveKind::all_reduce,
                       testing::devices(a, *rc::gen::inRange(1, devices - a + 1)), {bytes}, after);
        break;
      case 1:
        add_delay(dag, a, time, after);
        break;
      case 2:
      case 3:
        add_transfer(dag, a, b, bytes, after,
                     *rc::gen::element(Stream::gradient, Stream::tensor, Stream::pipeline));
        break;
      default:
        (void)sketch.kernel(a, *rc::gen::element(tensor, memory), time, after);
    }
  }
  return sketch;
}

Cluster random_star() {
  std::vector<double> rates;
  for (int i = *rc::gen::inRange(1, 6); i > 0; --i) rates.push_back(1e9 * *rc::gen::inRange(1, 5));
  return star(rates, 1us * *rc::gen::inRange(0, 20));
}

double largest_difference(const std::vector<Span>& a, const std::vector<Span>& b) {
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max({largest, std::abs((a[i].start - b[i].start).count()),
                        std::abs((a[i].end - b[i].end).count())});
  }
  return largest;
}

TEST_CASE("pace: random kernels and clocks end when everything anew at every event says") {
  CHECK(rc::check([] {
    const Cluster cluster = random_star();
    const KernelSketch sketch = random_sketch(static_cast<int>(cluster.devices.size()));
    const Setting setting{random_interference(), {random_slow(cluster.devices.size()), {}}};
    const Timeline paced = run_sketch(sketch, cluster, setting, Engine::fast, Fidelity::analytic);
    RC_ASSERT(largest_difference(paced.spans, anew_at_every_event(sketch, cluster, setting)) <=
              1e-9 * makespan(paced).count() + 1e-12);
    RC_ASSERT(run_sketch(sketch, cluster, setting, Engine::fast, Fidelity::analytic) == paced);
  }));
}

TEST_CASE("pace: the engines agree, and factors that nobody meets change nothing") {
  CHECK(rc::check([] {
    const Cluster cluster = random_star();
    const KernelSketch sketch = random_sketch(static_cast<int>(cluster.devices.size()));
    Setting setting{random_interference(),
                    {random_slow(cluster.devices.size()), random_slow(cluster.links.size())},
                    *rc::gen::inRange(0, 3) * 40us};
    const Fidelity fidelity = *rc::gen::element(Fidelity::hops, Fidelity::p2p, Fidelity::macro);
    const Timeline fast = run_sketch(sketch, cluster, setting, Engine::fast, fidelity);
    const Timeline simgrid = run_sketch(sketch, cluster, setting, Engine::simgrid, fidelity);
    // SimGrid merges events closer than 1 ns.
    const double allowed =
        1e-6 * makespan(fast).count() + 2e-9 * static_cast<double>(sketch.dag.size());
    RC_ASSERT(fast.hop_bytes == simgrid.hop_bytes);
    RC_ASSERT(largest_difference(fast.spans, simgrid.spans) <= allowed);
    // Every pair may be met, but tensor beside tensor is none: the long way to the plain result.
    setting.interference = {};
    const Timeline plain = run_sketch(sketch, cluster, setting, Engine::fast, fidelity);
    setting.interference.set(tensor, tensor, 2);
    const Timeline paced = run_sketch(sketch, cluster, setting, Engine::fast, fidelity);
    RC_ASSERT(largest_difference(paced.spans, plain.spans) <= 1e-9 * makespan(plain).count());
  }));
}

TEST_CASE("pace: larger factors never make a chain of kernels beside messages shorter") {
  CHECK(rc::check([] {
    const Cluster cluster = star({1e9, 1e9}, 1us);
    KernelSketch sketch;
    for (int i = *rc::gen::inRange(1, 12); i > 0; --i) {
      (void)sketch.kernel(0, tensor, *rc::gen::inRange(0, 2000) * 1us);
    }
    for (int i = *rc::gen::inRange(1, 12); i > 0; --i) {
      add_transfer(sketch.dag, 0, 1, std::int64_t{2} * *rc::gen::inRange(0, 1'000'000));
    }
    const auto factor = [] { return 1 + 0.125 * *rc::gen::inRange(0, 20); };
    const double kernels = factor(), messages = factor();
    const auto step = [&](double more, double yet_more) {
      const Interference interference = factors(kernels + more, messages + yet_more);
      return makespan(run_sketch(sketch, cluster, {interference})).count();
    };
    const double least = step(0, 0) * (1 - 1e-12);
    RC_ASSERT(step(factor() - 1, factor() - 1) >= least);
  }));
}

}  // namespace
}  // namespace parsim
