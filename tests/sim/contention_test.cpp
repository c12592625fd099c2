#include "sim/contention.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>

#include "lowering/lower.hpp"
#include "sim/kernels.hpp"
#include "sim/prepared_dag.hpp"
#include "tests/sim/kernel_sketch.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/list_scheduler.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/tiny_networks.hpp"

namespace parsim::sim {
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
    const Timeline timeline =
        run_sketch(sketch, cluster, {.interference = interference}, engine, fidelity);
    CHECK(timeline.spans[other.index()].start == date);
    return Ends{1e3 * timeline.spans[one.index()].end.count(),
                1e3 * timeline.spans[other.index()].end.count()};
  };
  const Ends first = ends(Engine::fast, Fidelity::hops);
  for (const Fidelity fidelity :
       {Fidelity::hops, Fidelity::p2p, Fidelity::macro, Fidelity::analytic}) {
    for (const Engine engine : {Engine::simgrid, Engine::fast}) {
      const Ends again = ends(engine, fidelity);
      CHECK(again.kernel == testing::approx(first.kernel).epsilon(1e-6));
      CHECK(again.message == testing::approx(first.message).epsilon(1e-6));
    }
  }
  return first;
}

TEST_CASE("contention: a kernel and a message that hold each other up, by hand") {
  // 2 ms of the 4 during the message: 4/3 done, the other 8/3 alone.
  Ends ends = kernel_and_message(tensor, 4ms, 0ms, factors(1.5, 1));
  CHECK(ends.kernel == testing::approx(14.0 / 3));
  CHECK(ends.message == testing::approx(2));
  // From the middle on: 2 done, 4/3 during the message, the last 2/3 alone.
  ends = kernel_and_message(tensor, 4ms, 2ms, factors(1.5, 1));
  CHECK(ends.kernel == testing::approx(14.0 / 3));
  CHECK(ends.message == testing::approx(4));
  // The message's clock: half of the first ms, then 1.5 more.
  ends = kernel_and_message(tensor, 1ms, 0ms, factors(1, 2));
  CHECK(ends.kernel == testing::approx(1));
  CHECK(ends.message == testing::approx(2.5));
  // Both: the kernel takes 1.5 ms; the message has 0.75 by then.
  ends = kernel_and_message(tensor, 1ms, 0ms, factors(1.5, 2));
  CHECK(ends.kernel == testing::approx(1.5));
  CHECK(ends.message == testing::approx(2.75));
  // Factors of other kernels.
  ends = kernel_and_message(memory, 1ms, 0ms, factors(1.5, 2));
  CHECK(ends.kernel == testing::approx(1));
  CHECK(ends.message == testing::approx(2));
}

/// Parts of one GPU whose walks through memory have these rates, in MB/us.
CommonMemory common_memory(const std::vector<std::array<double, 2>>& alone_together) {
  CommonMemory shared{Bytes{1'000'000}, {}};
  for (std::size_t d = 0; d < alone_together.size(); ++d) {
    const auto spread = [](double rate) {
      const Seconds time{1e-6 / rate};
      return Spread{time, time, time, 5};
    };
    shared.parts.push_back(
        {DeviceId{d}, spread(alone_together[d][0]), spread(alone_together[d][1])});
  }
  return shared;
}

TEST_CASE("contention: kernels on parts of one GPU share its memory, by hand") {
  // Copies within a device: in SimpleCost a megabyte read or written takes a microsecond.
  const Cluster cluster = star({1e9, 1e9, 1e9}, 0us);
  /// Ends in microseconds of copies that touch so many megabytes, by device; rates in MB/us.
  const auto ends = [&](const std::vector<std::array<double, 2>>& rates,
                        const std::vector<std::int64_t>& megabytes, double beside_message = 1) {
    KernelSketch sketch;
    std::vector<OpId> ops;
    for (std::size_t d = 0; d < megabytes.size(); ++d) {
      const int device = static_cast<int>(d);
      ops.push_back(add_transfer(sketch.dag, device, device, megabytes[d] * 500'000));
    }
    Slowdowns slowdowns;
    slowdowns.common_memory = {common_memory(rates)};
    slowdowns.interference.set(memory, communication, beside_message);
    if (beside_message > 1) {
      (void)add_transfer(sketch.dag, 0, 2, 1'000'000'000, {}, Stream::gradient);
    }
    std::vector<double> dates;
    for (const Engine engine : {Engine::fast, Engine::simgrid}) {
      const Timeline timeline = run_sketch(sketch, cluster, slowdowns, engine);
      std::vector<double> found;
      for (const OpId op : ops) found.push_back(1e6 * timeline.spans[op.index()].end.count());
      if (dates.empty()) dates = found;
      for (std::size_t i = 0; i < found.size(); ++i) {
        CHECK(found[i] == testing::approx(dates[i]).epsilon(1e-3));  // SimGrid's dates: 1 ns wide
      }
    }
    return dates;
  };
  const auto near = [](const std::vector<double>& found, const std::vector<double>& expected) {
    REQUIRE(found.size() == expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) CHECK(found[i] == testing::approx(expected[i]));
  };
  // Enough for both, and for one.
  near(ends({{1, 1}, {1, 1}}, {4, 4}), {4, 4});
  near(ends({{1, 0.6}, {1, 0.6}}, {4, 0}), {4, 0});
  // 1.2 for two that want 1 each: 0.6 each; the longer one is alone for its last 4 MB.
  near(ends({{1, 0.6}, {1, 0.6}}, {6, 6}), {10, 10});
  near(ends({{1, 0.6}, {1, 0.6}}, {6, 10}), {10, 14});
  // Shares by what each gets with the other.
  near(ends({{1, 0.9}, {1, 0.3}}, {9, 3}), {10, 10});
  // The second one wants 0.25 at most, as its walk alone; the first has the 0.75 left.
  near(ends({{1, 0.5}, {0.25, 0.5}}, {15, 5}), {16.25, 5});
  // During a message the first one wants 0.5, which leaves the second 0.7.
  near(ends({{1, 0.6}, {1, 0.6}}, {6, 6}, 2), {12, 6 / 0.7});
}

TEST_CASE(
    "contention: messages among parts of one GPU take of its memory what they read and write") {
  const Cluster cluster = star({1e9, 1e9}, 0us);
  KernelSketch sketch;
  // 2 ms, 4 MB read and written, 2e9 B/s each; of 3e9.
  const OpId there = add_transfer(sketch.dag, 0, 1, 2'000'000);
  const OpId back = add_transfer(sketch.dag, 1, 0, 2'000'000, {}, Stream::gradient);
  // Both read both, both write both: 8 MB in 2 ms of a ring of halves, without contention.
  const OpId sum = add_collective(sketch.dag, CollectiveKind::all_reduce, devices(0, 2),
                                  {2'000'000}, {there, back});
  Slowdowns slowdowns;
  slowdowns.common_memory = {common_memory({{0.0025, 0.0015}, {0.0025, 0.0015}})};
  for (const Engine engine : {Engine::fast, Engine::simgrid}) {
    const Timeline timeline = run_sketch(sketch, cluster, slowdowns, engine);
    const auto took = [&](OpId op) {
      const Span& span = timeline.spans[op.index()];
      return 1e3 * (span.end - span.start).count();
    };
    CHECK(took(there) == testing::approx(2 * 4. / 3).epsilon(1e-4));
    CHECK(took(back) == testing::approx(2 * 4. / 3).epsilon(1e-4));
    CHECK(took(sum) == testing::approx(2 * 4. / 3).epsilon(1e-4));
  }
  const auto traffic = [&](OpId id) { return message_traffic(sketch.dag, id).value; };
  CHECK(traffic(there) == 4'000'000);
  CHECK(traffic(sum) == 8'000'000);
}

TEST_CASE("contention: a message that others' flows delay anyway has time for its clock") {
  // Two messages share a link: 4 ms each, their clocks end at 2.5. A kernel on a third device slows
  // nothing down, an update counts as memory, a delay as nothing.
  const Cluster cluster = star({1e9, 1e9, 1e9}, 0us);
  KernelSketch sketch;
  (void)sketch.kernel(1, tensor, 1ms);
  (void)sketch.kernel(2, tensor, 9ms);
  const OpId a = add_transfer(sketch.dag, 0, 1, 2'000'000);
  const OpId b = add_transfer(sketch.dag, 0, 1, 2'000'000, {}, Stream::pipeline);
  add_delay(sketch.dag, 1, 9ms);
  for (const Engine engine : {Engine::simgrid, Engine::fast}) {
    const Timeline timeline = run_sketch(sketch, cluster, {.interference = factors(1, 2)}, engine);
    for (const OpId id : {a, b}) {
      CHECK(timeline.spans[id.index()].end.count() == testing::approx(4e-3));
    }
  }
  CHECK(kernel_activity(sketch.dag, OpId{0}) == tensor);
  CHECK(kernel_activity(sketch.dag, a) == std::nullopt);
  CHECK(kernel_activity(sketch.dag, add_transfer(sketch.dag, 1, 1, 2)) == memory);
  CHECK(kernel_activity(sketch.dag, OpId{4}) == std::nullopt);
}

TEST_CASE("contention: tensor kernels are those that the model of kernels prices as products") {
  for (const Network& network : tiny_networks()) {
    const Plan plan = random_plan(network, 2, 8, 3);
    const ExecDag dag = lowering::lower(network, star_of(3, "10 GB/s", "1us"), plan);
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
                                      const Slowdowns& slowdowns) {
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
  /// Its slowdown by concurrent operations on its devices.
  const auto slowdown = [&](std::size_t i) {
    double worst = 1;
    for (std::size_t k = 0; k < dag.size(); ++k) {
      if (!runs[k] || communicates(dag, OpId{i}) == communicates(dag, OpId{k})) continue;
      const bool message = communicates(dag, OpId{i});
      const std::size_t kernel = message ? k : i;
      const auto activity = kernel_activity(dag, OpId{kernel});
      const std::vector<DeviceId> met = devices_of(message ? i : k);
      const DeviceId device = kernel_device(dag, OpId{kernel});
      if (!activity || std::find(met.begin(), met.end(), device) == met.end()) continue;
      worst = std::max(worst, message ? slowdowns.interference.of(communication, *activity)
                                      : slowdowns.interference.of(*activity, communication));
    }
    return worst;
  };
  struct Want {
    double demand = 0, weight = 0;
  };
  /// What an operation wants of a memory that all who touch it in the operation share.
  const auto wants = [&](std::size_t i, const CommonMemory& common) {
    if (alone[i] <= 0s) return Want{};
    std::vector<DeviceId> touching{kernel_device(dag, OpId{i})};
    if (communicates(dag, OpId{i})) {
      touching = devices_of(i);
      if (dag.kind(OpId{i}) == OpKind::transfer) touching.erase(touching.begin());  // who receives
    }
    Want want;
    double most = 0;
    for (const DeviceId device : touching) {
      const auto part = std::find_if(common.parts.begin(), common.parts.end(),
                                     [&](const MemoryPart& one) { return one.device == device; });
      if (part == common.parts.end()) return Want{};
      most += common.rate_alone(*part).value;
      want.weight += common.rate_together(*part).value;
    }
    want.demand = std::min(memory_traffic(dag, OpId{i}) / alone[i].count(), most);
    return want;
  };
  /// By bisection: the level at which what all get is what there is.
  const auto level_of = [&](const CommonMemory& common) {
    const auto used = [&](double level) {
      double sum = 0;
      for (std::size_t k = 0; k < dag.size(); ++k) {
        if (!runs[k]) continue;
        const Want want = wants(k, common);
        sum += std::min(want.demand / slowdown(k), level * want.weight);
      }
      return sum;
    };
    double low = 0, high = 1e3;
    if (used(high) <= common.rate().value) return high;
    for (int bit = 0; bit < 80; ++bit) {
      const double middle = (low + high) / 2;
      (used(middle) < common.rate().value ? low : high) = middle;
    }
    return high;
  };
  /// Seconds that a second of its time takes now.
  const auto slowdown_of = [&](std::size_t i) {
    double worst = slowdown(i);
    for (const CommonMemory& common : slowdowns.common_memory) {
      const Want want = wants(i, common);
      if (want.demand > 0) worst = std::max(worst, want.demand / (level_of(common) * want.weight));
    }
    const DeviceId device = kernel_device(dag, OpId{i});
    if (device.valid()) {
      for (const SlowPeriod& period : slowdowns.of(device).periods()) {
        if (period.from.count() <= now && now < period.to.count()) worst *= period.factor;
      }
    }
    return worst;
  };
  while (true) {
    double next = Contention::never.count();
    std::vector<double> factors(dag.size(), 1);
    for (std::size_t i = 0; i < dag.size(); ++i) {
      if (!runs[i]) continue;
      factors[i] = slowdown_of(i);
      next = std::min(next, now + left[i] * factors[i]);
    }
    if (next == Contention::never.count()) return spans;
    for (const SlowPeriods& slow : slowdowns.devices) {
      for (const SlowPeriod& period : slow.periods()) {
        for (const double change : {period.from.count(), period.to.count()}) {
          if (change > now) next = std::min(next, change);
        }
      }
    }
    std::vector<std::size_t> ended;
    for (std::size_t i = 0; i < dag.size(); ++i) {
      if (!runs[i]) continue;
      left[i] -= (next - now) / factors[i];
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
    interference.set(pair.activity, pair.during, 1 + 0.125 * *rc::gen::inRange(0, 12));
  }
  return interference;
}

/// Up to five devices, each with up to two slow periods.
std::vector<SlowPeriods> random_slow_periods(std::size_t devices) {
  std::vector<SlowPeriods> list;
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

/// Two GPUs of up to three devices, or one; whether anything is scarce depends on what runs.
std::vector<CommonMemory> random_memory(std::size_t devices) {
  std::vector<CommonMemory> all(2);
  for (CommonMemory& shared : all) shared.touched = Bytes{1'000'000};
  for (std::size_t d = 0; d < devices; ++d) {
    // Kernels of sketches touch some 40 bytes in a millisecond, copies 1e12 bytes in a second.
    const double rate = *rc::gen::element(3e4, 1e5, 1e12);
    const Seconds time{1e6 / rate}, longer = time * (1 + 0.125 * *rc::gen::inRange(0, 20));
    all[static_cast<std::size_t>(*rc::gen::inRange(0, 2))].parts.push_back(
        {DeviceId{d}, {time, time, time, 5}, {longer, longer, longer, 5}});
  }
  std::erase_if(all, [](const CommonMemory& shared) { return shared.parts.empty(); });
  return all;
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

TEST_CASE("contention: random kernels and clocks end when everything anew at every event says") {
  CHECK(rc::check([] {
    const Cluster cluster = random_star();
    const KernelSketch sketch = random_sketch(static_cast<int>(cluster.devices.size()));
    const Slowdowns slowdowns{.devices = random_slow_periods(cluster.devices.size()),
                              .interference = random_interference(),
                              .common_memory = random_memory(cluster.devices.size())};
    const Timeline contended =
        run_sketch(sketch, cluster, slowdowns, Engine::fast, Fidelity::analytic);
    RC_ASSERT(
        largest_difference(contended.spans, anew_at_every_event(sketch, cluster, slowdowns)) <=
        1e-9 * makespan(contended).count() + 1e-12);
    RC_ASSERT(run_sketch(sketch, cluster, slowdowns, Engine::fast, Fidelity::analytic) ==
              contended);
  }));
}

TEST_CASE("contention: the engines agree, and factors of absent pairs change nothing") {
  CHECK(rc::check([] {
    const Cluster cluster = random_star();
    const KernelSketch sketch = random_sketch(static_cast<int>(cluster.devices.size()));
    Slowdowns slowdowns{random_slow_periods(cluster.devices.size()),
                        random_slow_periods(cluster.links.size()), random_interference(),
                        random_memory(cluster.devices.size())};
    const Seconds launch_interval = *rc::gen::inRange(0, 3) * 40us;
    const Fidelity fidelity = *rc::gen::element(Fidelity::hops, Fidelity::p2p, Fidelity::macro);
    const Timeline fast =
        run_sketch(sketch, cluster, slowdowns, Engine::fast, fidelity, launch_interval);
    const Timeline simgrid =
        run_sketch(sketch, cluster, slowdowns, Engine::simgrid, fidelity, launch_interval);
    // SimGrid merges events closer than 1 ns.
    const double allowed =
        1e-6 * makespan(fast).count() + 2e-9 * static_cast<double>(sketch.dag.size());
    RC_ASSERT(fast.hop_bytes == simgrid.hop_bytes);
    RC_ASSERT(largest_difference(fast.spans, simgrid.spans) <= allowed);
    // All pairs occur but tensor during tensor, so this must give the plain result.
    slowdowns.interference = {};
    slowdowns.common_memory = {};
    const Timeline plain =
        run_sketch(sketch, cluster, slowdowns, Engine::fast, fidelity, launch_interval);
    slowdowns.interference.set(tensor, tensor, 2);
    const Timeline contended =
        run_sketch(sketch, cluster, slowdowns, Engine::fast, fidelity, launch_interval);
    RC_ASSERT(largest_difference(contended.spans, plain.spans) <= 1e-9 * makespan(plain).count());
  }));
}

TEST_CASE("contention: larger factors never make a chain of kernels during messages shorter") {
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
      return makespan(run_sketch(sketch, cluster, {.interference = interference})).count();
    };
    const double least = step(0, 0) * (1 - 1e-12);
    RC_ASSERT(step(factor() - 1, factor() - 1) >= least);
  }));
}

}  // namespace
}  // namespace parsim::sim
