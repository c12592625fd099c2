#include "hw/calibrate.hpp"

#include <doctest/doctest.h>

#include <cmath>

#include "core/errors.hpp"
#include "hw/host_executor.hpp"
#include "hw/tensor_slices.hpp"
#include "lowering/lower.hpp"
#include "sim/sim.hpp"
#include "strategies/strategies.hpp"
#include "tests/hw/runnable.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/tiny_networks.hpp"

namespace parsim::testing {
namespace {

/// The synthetic host with these slowdowns, answered from its formula without threads.
struct OnPaper {
  Interference truth;
  std::array<double, 3> walk_factors{1, 1, 1};
  hw::Hardware about = hw::HostExecutor({64, 32, 64}).hardware();
  std::size_t asked = 0;  ///< operations alone

  [[nodiscard]] const hw::Hardware& hardware() const { return about; }
  std::vector<Spread> alone(const ExecDag& dag, const std::vector<OpId>& ops, int samples) {
    std::vector<Spread> times;
    for (const OpId op : ops) times.push_back(spread(time(dag, op), samples));
    asked += ops.size();
    return times;
  }
  [[nodiscard]] std::vector<std::vector<hw::Beside>> together(
      const ExecDag& dag, const std::vector<std::vector<hw::Neighbour>>& groups,
      int samples) const {
    std::vector<std::vector<hw::Beside>> all;
    for (const std::vector<hw::Neighbour>& group : groups) {
      all.emplace_back();
      for (const hw::Neighbour& one : group) {
        double factor = 1;
        for (const hw::Neighbour& other : group) {
          if (other.op == one.op || (dag.strategy == "walks")) continue;
          const auto kind = kernel_activity(dag, one.op), beside = kernel_activity(dag, other.op);
          REQUIRE(kind.has_value() != beside.has_value());
          factor = truth.of(kind.value_or(Activity::communication),
                            beside.value_or(Activity::communication));
        }
        if (dag.strategy == "walks") factor = walk_factors.at(one.device.index());
        const Seconds alone = time(dag, one.op);
        all.back().push_back({spread(alone, samples), spread(factor * alone, samples)});
      }
    }
    return all;
  }
  static Spread launch(int samples) { return spread(std::chrono::microseconds(5), samples); }

 private:
  [[nodiscard]] Seconds time(const ExecDag& dag, OpId op) const {
    return hw::modelled_duration(dag, op, about.machine);
  }
  static Spread spread(Seconds time, int samples) { return {time, time, time, samples}; }
};

/// A machine on which DAGs called so fail.
struct Failing {
  hw::Hardware about = hw::HostExecutor({64}).hardware();
  int steps = 0;

  [[nodiscard]] const hw::Hardware& hardware() const { return about; }
  Measurement step(const ExecDag& dag, int) {
    if (dag.strategy == "fails") throw hw::HardwareError("a call failed");
    ++steps;
    return {};
  }
};

Seconds simulated_step(const ExecDag& dag, const Profile& profile, const Interference& interference,
                       const std::vector<CommonMemory>& common_memory) {
  const Cluster& cluster = profile.machine.cluster;
  const auto cost = sim::make_profiled(cluster, sim::make_constant_efficiency(cluster), profile,
                                       "the test's profile");
  sim::SimOptions options;
  options.engine = sim::Engine::fast;
  options.slowdowns.interference = interference;
  options.slowdowns.common_memory = common_memory;
  options.launch_interval = profile.launch.median;
  return makespan(sim::make_simulator(cluster, *cost, options)->run(dag));
}

}  // namespace

TEST_CASE("calibrate: known slowdowns come out exactly, and predict the step that has them") {
  const Network network = tiny_network("residual");
  Interference truth;
  truth.set(Activity::tensor, Activity::communication, 1.25);
  truth.set(Activity::memory, Activity::communication, 1.75);
  truth.set(Activity::communication, Activity::tensor, 2);
  truth.set(Activity::communication, Activity::memory, 1.5);
  const std::array<double, 3> walk_factors{2, 2.5, 3};
  int differ = 0;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    const ExecDag dag = lowering::lower(network, star_of(3, "10 GB/s", "1us"),
                                        with_split_states(random_plan(network, 2, 8, seed), seed));
    CAPTURE(seed);
    OnPaper on_paper{truth, walk_factors};
    const Profile profile = hw::calibrate(on_paper, {dag}, 9);
    REQUIRE(profile.interference_samples.size() >= 4);
    for (const InterferencePair& pair : interference_pairs) {
      CHECK(profile.interference.of(pair.activity, pair.during) ==
            testing::approx(truth.of(pair.activity, pair.during)).epsilon(1e-12));
    }
    for (const InterferenceSample& sample : profile.interference_samples) {
      CHECK(sample.alone.samples == 9);
      CHECK(sample.during.samples == 9);
    }
    CHECK(profile.launch.median == std::chrono::microseconds(5));
    // A host of 64 walks at 2 GB/s after an overhead of 1 ms, one of 32 at half of that.
    REQUIRE(profile.common_memory.size() == 1);
    const CommonMemory& memory = profile.common_memory[0];
    const double bytes = static_cast<double>(memory.touched.value);
    double all = 0;
    for (std::size_t d = 0; d < 3; ++d) {
      const double alone = bytes / (1e-3 + bytes / (d == 1 ? 1e9 : 2e9));
      CHECK(memory.rate_alone(memory.parts[d]).value == testing::approx(alone));
      all += alone / walk_factors[d];
    }
    CHECK(memory.rate().value == testing::approx(all));
    const Cluster& here = profile.machine.cluster;
    CHECK(sim::common_memory_of(profile, here) == profile.common_memory);
    CHECK(sim::common_memory_of(profile, star_of(3, "10 GB/s", "1us")).empty());
    const Seconds measured = simulated_step(dag, profile, truth, {});
    CHECK(simulated_step(dag, profile, profile.interference, {}).count() ==
          testing::approx(measured.count()).epsilon(1e-9));
    differ += simulated_step(dag, profile, {}, {}) < measured * 0.999 ? 1 : 0;
    const Profile again = profile_from_json(to_json(profile), "p.json");
    CHECK(again.interference == profile.interference);
    CHECK(again.common_memory == profile.common_memory);
  }
  CHECK(differ >= 3);  // else it would not matter
}

TEST_CASE("calibrate: apart from messages the longest kernel of each kind is measured") {
  // Both devices hold both layers, of which the second is the larger.
  const Network network = network_of("x: vector 64; a: dense 8; b: relu; c: dense 4096; loss");
  const Cluster two = star_of(2, "10 GB/s", "1us");
  const auto cost = sim::make_constant_efficiency(two);
  strategies::StrategyInput input{network, two, *cost};
  input.batch = 64;
  const ExecDag dag = lowering::lower(network, two, strategies::plan_data(input));
  OnPaper on_paper{};
  on_paper.about = hw::HostExecutor({64, 64}).hardware();
  hw::Calibration calibration(on_paper.about.machine);
  const std::vector<OpId> ops = calibration.unknown(dag);
  calibration.add(dag, ops, on_paper.alone(dag, ops, 1));
  const auto time = [&](OpId op) { return hw::modelled_duration(dag, op, on_paper.about.machine); };
  const std::vector<hw::Calibration::Group> groups = calibration.neighbours(dag);
  REQUIRE(groups.size() == 2);  // tensor and memory
  for (const hw::Calibration::Group& group : groups) {
    const OpId chosen = group[0].op;
    bool shorter_before = false;
    for (std::size_t i = 0; i < dag.size(); ++i) {
      if (kernel_activity(dag, OpId{i}) != kernel_activity(dag, chosen)) continue;
      CHECK(time(OpId{i}) <= time(chosen));
      shorter_before = shorter_before || (OpId{i} < chosen && time(OpId{i}) < time(chosen));
    }
    CHECK(shorter_before);
  }
}

TEST_CASE("calibrate: devices of one host contend for its memory, and predictions know how much") {
  // Element-wise layers of 16 MB in and out; the shares' walks want 4 GB/s of 3.
  const Network network = network_of("x: vector 1000000; a: relu; b: relu; c: relu; loss");
  const Cluster two = star_of(2, "10 GB/s", "1us");
  const auto cost = sim::make_constant_efficiency(two);
  strategies::StrategyInput input{network, two, *cost};
  input.batch = 8;
  const ExecDag dag = lowering::lower(network, two, strategies::plan_data(input));
  hw::HostExecutor host({64, 64});
  const Profile profile = hw::calibrate(host, {dag}, 5);
  const Measurement measured = host.step(dag, 5);
  CHECK(measured.step.low == measured.step.high);
  const auto error = [&](const std::vector<CommonMemory>& memory) {
    return simulated_step(dag, profile, profile.interference, memory) / measured.step.median - 1;
  };
  const std::vector<CommonMemory> known = sim::common_memory_of(profile, profile.machine.cluster);
  REQUIRE(known.size() == 1);
  CHECK(std::abs(error(known)) <= 1e-6);
  CHECK(error({}) < -0.12);  // each kernel 17 ms instead of 21.3
  // The same again, to the last bit.
  CHECK(hw::calibrate(host, {dag}, 5) == profile);
  CHECK(host.step(dag, 5) == measured);
}

TEST_CASE("calibrate: the synthetic host has no interference, and its links are as throttled") {
  const Network network = tiny_network("residual");
  const ExecDag dag =
      lowering::lower(network, star_of(3, "10 GB/s", "1us"), random_plan(network, 2, 8, 1));
  const hw::LinkThrottle asked{{100e6}, Seconds{2e-3}};
  hw::HostExecutor host({64, 64, 64}, asked);
  const Profile profile = hw::calibrate(host, {dag}, 5);
  CHECK_FALSE(profile.interference_samples.empty());
  for (const InterferencePair& pair : interference_pairs) {
    CHECK(profile.interference.of(pair.activity, pair.during) == 1);
  }
  REQUIRE(profile.links.size() == 6);
  for (const LinkFit& link : profile.links) {
    CHECK(link.rate.value == testing::approx(asked.rate.value).epsilon(1e-9));
    CHECK(link.latency / asked.latency == testing::approx(1).epsilon(1e-9));
  }
  CHECK(profile.launch.samples == 0);  // no thread launches another's operations
}

TEST_CASE("calibrate: times of a line give back its latency and rate, others the nearest line") {
  const std::vector<Bytes> sizes = hw::message_sizes(Bytes{std::int64_t{1} << 40});
  REQUIRE(sizes.size() == 9);
  CHECK(sizes.front() == Bytes{4096});
  CHECK(sizes.back() == Bytes{256 << 20});
  CHECK(hw::message_sizes(Bytes{5000}).size() == 1);
  const BytesPerSecond rate{12.5e9};
  const Seconds latency{7e-6};
  std::vector<std::pair<Bytes, Seconds>> times;
  for (const Bytes size : sizes) times.emplace_back(size, latency + size / rate);
  const auto fit = hw::fit_link(DeviceId{0}, DeviceId{1}, times);
  REQUIRE(fit.has_value());
  CHECK(fit->rate.value == testing::approx(rate.value).epsilon(1e-9));
  CHECK(fit->latency.count() == testing::approx(latency.count()).epsilon(1e-9));
  CHECK(fit->largest_error < 1e-9);
  // Any other line has larger squares: two points off, the fit against a grid of lines around it.
  times[3].second *= 1.2;
  times[7].second *= 0.9;
  const auto bent = hw::fit_link(DeviceId{0}, DeviceId{1}, times);
  REQUIRE(bent.has_value());
  const auto squares = [&](double l, double r) {
    double sum = 0;
    for (const auto& [size, time] : times) {
      const double off = (Seconds{l} + size / BytesPerSecond{r}) / time - 1;
      sum += off * off;
    }
    return sum;
  };
  const double best = squares(bent->latency.count(), bent->rate.value);
  for (const double l : {0.97, 0.999, 1.0, 1.001, 1.03}) {
    for (const double r : {0.97, 0.999, 1.0, 1.001, 1.03}) {
      CHECK(squares(l * bent->latency.count(), r * bent->rate.value) >= best * (1 - 1e-12));
    }
  }
  CHECK_FALSE(hw::fit_link(DeviceId{0}, DeviceId{1}, {times[0]}).has_value());
  CHECK_FALSE(hw::fit_link(DeviceId{0}, DeviceId{1},
                           {{Bytes{1000}, Seconds{1e-3}}, {Bytes{2000}, Seconds{1e-4}}})
                  .has_value());
}

TEST_CASE("calibrate: a star whose links are known comes out of the paths over it") {
  const std::vector<std::pair<BytesPerSecond, Seconds>> star{{BytesPerSecond{10e9}, Seconds{1e-6}},
                                                             {BytesPerSecond{10e9}, Seconds{4e-6}},
                                                             {BytesPerSecond{2e9}, Seconds{2e-6}}};
  for (const std::size_t devices : {std::size_t{2}, std::size_t{3}}) {
    std::vector<LinkFit> fits;
    for (std::size_t a = 0; a < devices; ++a) {
      for (std::size_t b = 0; b < devices; ++b) {
        if (a == b) continue;
        fits.push_back({DeviceId{a}, DeviceId{b}, star[a].second + star[b].second,
                        std::min(star[a].first, star[b].first), 0});
      }
    }
    const auto links = hw::star_links(devices, fits);
    REQUIRE(links.size() == devices);
    for (std::size_t d = 0; d < devices; ++d) {
      CHECK(links[d].first == star[d].first);
      // Two devices have one path: which half is longer cannot be measured.
      const Seconds expected = devices == 2 ? Seconds{2.5e-6} : star[d].second;
      CHECK(links[d].second.count() == testing::approx(expected.count()).epsilon(1e-9));
    }
    fits.pop_back();
    CHECK(hw::star_links(devices, fits).empty());
  }
}

TEST_CASE("calibrate: every kernel, copy and message is measured once, however often it occurs") {
  const Network network = tiny_network("residual");
  const ExecDag dag =
      lowering::lower(network, star_of(3, "10 GB/s", "1us"), random_plan(network, 2, 8, 3));
  OnPaper once;
  OnPaper twice;
  once.about.largest_message = twice.about.largest_message = {};
  const Profile profile = hw::calibrate(once, {dag}, 5);
  const Profile again = hw::calibrate(twice, {dag, dag}, 5);
  CHECK(once.asked == twice.asked);
  CHECK(again.kernels == profile.kernels);
  CHECK(again.memory == profile.memory);
  CHECK(again.messages == profile.messages);
  CHECK(once.asked < dag.size());
  CHECK(profile.kernels.size() + profile.memory.size() + profile.messages.size() <= once.asked);
  for (const KernelSample& sample : profile.kernels) CHECK(sample.time.samples == 5);
}

TEST_CASE("calibrate: the synthetic host's formula by hand") {
  const Machine host = hw::HostExecutor({64, 32}).hardware().machine;
  const Network net = network_of("x: vector 1000; d: dense 500; loss");
  const ExecDag dag =
      lowering::lower(net, star_of(1, "10 GB/s", "1us"), single_device_plan(net, 100));
  // Forward: 2 · 100 · 1000 · 500 = 1e8 FLOPs at 5 GFLOP/s are 20 ms, and 1 ms overhead.
  CHECK(hw::modelled_duration(dag, OpId{0}, host).count() == testing::approx(0.021));
  const NotedDag noted = dag_of("a: transfer d0->d1 25MB; b: all-reduce d0,d1 25MB");
  // 25 MB at 250 MB/s are 100 ms; two links of 0.25 ms. A ring of two sends 2 halves.
  CHECK(hw::modelled_duration(noted.dag, OpId{0}, host).count() == testing::approx(0.1005));
  CHECK(hw::modelled_duration(noted.dag, OpId{1}, host).count() == testing::approx(0.101));
  // Over 5 GB/s and 10 us a transfer takes 5.01 ms, the ring's two steps 2.51 ms each; and a
  // profile of other links is another machine's.
  const Machine throttled =
      hw::HostExecutor({64, 32}, hw::LinkThrottle{{5e9}, Seconds{10e-6}}).hardware().machine;
  CHECK(hw::modelled_duration(noted.dag, OpId{0}, throttled).count() == testing::approx(5.01e-3));
  CHECK(hw::modelled_duration(noted.dag, OpId{1}, throttled).count() == testing::approx(5.02e-3));
  CHECK(difference(throttled, host) == "throttled links 5.00 GB/s 10.0 us, here none");
  CHECK(difference(host, throttled) == "throttled links none, here 5.00 GB/s 10.0 us");
  CHECK(difference(throttled, throttled) == "");
}

TEST_CASE("calibrate: more devices than there are, and more memory, are refused") {
  hw::HostExecutor host({64});
  const Network net = tiny_network("plain");
  const ExecDag wide =
      lowering::lower(net, star_of(4, "10 GB/s", "1us"), random_plan(net, 3, 8, 12));
  CHECK_THROWS_WITH_AS(static_cast<void>(host.run(wide)),
                       doctest::Contains("devices, synthetic host has 1"), hw::HardwareError);
  OnPaper small;
  small.about.machine.cluster.devices[0].memory = Bytes{1000};
  const ExecDag dag =
      lowering::lower(net, star_of(1, "10 GB/s", "1us"), single_device_plan(net, 8));
  CHECK_THROWS_AS(hw::check_fits(dag, small.about.machine), hw::MemoryError);
  // What fits because tensors share memory does not where each has its own.
  OnPaper enough;
  enough.about.machine.cluster.devices[0].memory =
      Bytes{hw::bytes_held(dag, hw::stores(dag))[0].value - 1};
  for (const std::string backend : {"cuda", "host", "cpu"}) {
    enough.about.machine.backend = backend;
    CAPTURE(backend);
    if (backend == "cpu") {
      CHECK_THROWS_AS(hw::check_fits(dag, enough.about.machine), hw::MemoryError);
    } else {
      CHECK_NOTHROW(hw::check_fits(dag, enough.about.machine));
    }
  }
  Failing small_too{small.about};
  const hw::Runs runs = hw::measure(small_too, {dag}, 1);
  REQUIRE(runs.measured.runs.size() == 1);
  CHECK(runs.measured.runs[0].fits == false);
  CHECK(runs.measured.runs[0].error.starts_with("host0 needs "));
  CHECK(runs.exit_code == 5);
  CHECK_THROWS_AS(static_cast<void>(hw::calibrate(small, {dag}, 1)), hw::MemoryError);
}

TEST_CASE("calibrate: a DAG that is refused is a row with its reason, and the others run") {
  const Network net = tiny_network("plain");
  const ExecDag one =
      lowering::lower(net, star_of(1, "10 GB/s", "1us"), single_device_plan(net, 8));
  const ExecDag wide =
      lowering::lower(net, star_of(4, "10 GB/s", "1us"), random_plan(net, 3, 8, 12));
  const Network words = refused_network();
  const ExecDag unknown =
      lowering::lower(words, star_of(1, "10 GB/s", "1us"), single_device_plan(words, 2));
  Failing host;
  ExecDag fails = one;
  fails.strategy = "fails";
  const hw::Runs runs = hw::measure(host, {one, wide, fails, unknown, one}, 1);
  REQUIRE(runs.measured.runs.size() == 5);
  CHECK(host.steps == 2);
  CHECK(runs.measured.runs[0].error == "");
  CHECK(runs.measured.runs[1].error.ends_with("devices, synthetic host has 1"));
  CHECK(runs.measured.runs[1].fits);
  CHECK(runs.measured.runs[2].error == "a call failed");
  CHECK(runs.measured.runs[3].error.ends_with("simulate it without --hw"));
  CHECK(runs.measured.runs[4].error == "");
  CHECK(runs.exit_code == 3);  // the first refusal's
  CHECK(hw::measure(host, {one, unknown, wide}, 1).exit_code == 2);
  CHECK(hw::measure(host, {one}, 1).exit_code == 0);
}

TEST_CASE("calibrate: only GPUs run products in FP8") {
  const Network net = tiny_network("plain");
  ExecDag dag = lowering::lower(net, star_of(1, "10 GB/s", "1us"), single_device_plan(net, 8));
  const Machine host = hw::HostExecutor({64}).hardware().machine;
  dag.precision = Precision::fp8_blockwise;
  CHECK_THROWS_WITH_AS(hw::check_fits(dag, host),
                       "--precision: 'fp8-blockwise' with --hw-backend host; accepted there: fp32, "
                       "tf32, bf16, fp16; FP8 on GPUs",
                       InputError);
}

TEST_CASE("calibrate: bf16 is refused by name on a GPU older than compute capability 8.0") {
  const Network net = tiny_network("plain");
  ExecDag dag = lowering::lower(net, star_of(1, "10 GB/s", "1us"), single_device_plan(net, 8));
  Machine gpu = hw::HostExecutor({64}).hardware().machine;
  DeviceModel& model = gpu.cluster.models[0];
  model.name = "Tesla T4";
  for (const std::string architecture : {"7.5", "6.1", "8.0", "9.0", "10.0"}) {
    model.architecture = architecture;
    for (const Precision precision : {Precision::fp32, Precision::tf32, Precision::bf16}) {
      dag.precision = precision;
      CAPTURE(architecture);
      if (precision == Precision::bf16 && (architecture == "7.5" || architecture == "6.1")) {
        const std::string message =
            "--precision: bf16 on Tesla T4, whose compute capability is " + architecture +
            "; accepted there: fp32; bf16 and tf32 from compute capability 8.0";
        CHECK_THROWS_WITH_AS(hw::check_fits(dag, gpu), message.c_str(), InputError);
      } else {
        CHECK_NOTHROW(hw::check_fits(dag, gpu));
      }
    }
  }
}

}  // namespace parsim::testing
