// Failures and checkpoints: closed forms against simulated failures and against all intervals.
#include "experiment/failures.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/random.hpp"
#include "networks/networks.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/refusal.hpp"
#include "topologies/cluster_file.hpp"

namespace parsim::experiment {
namespace {

using namespace std::chrono_literals;

/// A machine that fails: when the next failure comes, by a memoryless clock.
class Failures {
 public:
  Failures(Seconds mtbf, std::uint64_t seed) : mtbf_(mtbf), random_(seed) {}
  Seconds next() {
    const double uniform = (static_cast<double>(random_.next() >> 11) + 0.5) * 0x1p-53;
    return -std::log(uniform) * mtbf_;
  }

 private:
  Seconds mtbf_;
  Random random_;
};

struct Simulated {
  Seconds mean{}, error{};  ///< of the time from one checkpoint to the next; its standard error
};

/// Step by step: a checkpoint after every `steps` steps; a failure during a step, a checkpoint or
/// a restart loses all since the last checkpoint, and is followed by a restart.
Simulated simulate(const FailureRates& rates, Seconds step, std::int64_t steps, int checkpoints,
                   std::uint64_t seed) {
  Failures failures(rates.mtbf, seed);
  Seconds left = failures.next();  // until the next failure
  double sum = 0, squares = 0;
  for (int done = 0; done < checkpoints; ++done) {
    Seconds time{};
    const auto survives = [&](Seconds work) {
      time += std::min(left, work);
      left -= work;
      if (left > Seconds{}) return true;
      left = failures.next();
      return false;
    };
    for (std::int64_t at = 0; at <= steps;) {
      if (survives(at < steps ? step : rates.write)) {
        ++at;
        continue;
      }
      at = 0;
      while (!survives(rates.restart)) {
      }
    }
    sum += time.count();
    squares += time.count() * time.count();
  }
  const double mean = sum / checkpoints;
  return {Seconds{mean}, Seconds{std::sqrt((squares / checkpoints - mean * mean) / checkpoints)}};
}

constexpr FailureRates cases[] = {
    {24h, 5min, 10min},  // the three of Daly 2006, figures 3 to 5
    {6h, 5min, 10min},
    {15min, 5min, 10min},
    {1h, 1s, 0s},
};

Cluster cluster_of(const std::string& keys, const std::string& node_keys = "") {
  return topologies::parse_cluster(
      "[[nodes]]\nname = \"n\"\ncount = 2\n" + node_keys +
          "\ndevices = [{ model = \"t4\", count = 2" + keys +
          " }]\n[[links]]\na = \"*gpu*\"\nb = \"*gpu*\"\nrate = \"1 GB/s\"\nlatency = \"1 us\"\n",
      "two.toml");
}

}  // namespace

TEST_CASE("failures: intervals by hand") {
  // Young: sqrt(2 * 300 * 86400) = 7200. Daly: x = 300 / 172800 = 0.00173611, sqrt(x) = 1/24, so
  // 7200 * (1 + 1/72 + 1/5184) - 300 = 7200 + 100 + 1.39 - 300.
  CHECK(young_interval(cases[0]).count() == testing::approx(7200));
  CHECK(daly_interval(cases[0]).count() == testing::approx(7001.389).epsilon(1e-6));
  // The optima of the figures' captions, in whole minutes but for the last.
  CHECK(daly_interval(cases[0]) / 1min == testing::approx(117).epsilon(0.005));
  CHECK(daly_interval(cases[1]) / 1min == testing::approx(57).epsilon(0.5 / 57));
  CHECK(daly_interval(cases[2]) / 1min == testing::approx(9.1).epsilon(0.006));
  CHECK(daly_interval({10s, 20s, 0s}) == 10s);  // write >= 2 * mtbf
}

TEST_CASE("failures: goodput agrees with simulated failures within four standard errors") {
  std::uint64_t seed = 1;
  for (const FailureRates& rates : cases) {
    for (const double factor : {0.3, 1.0, 2.5}) {
      const Seconds step = daly_interval(rates) / 50;
      const auto steps = static_cast<std::int64_t>(std::lround(50 * factor));
      const Simulated simulated = simulate(rates, step, steps, 40'000, seed++);
      const Seconds interval = static_cast<double>(steps) * step;
      const Seconds expected = interval / goodput(rates, interval);
      CAPTURE(rates.mtbf.count());
      CAPTURE(steps);
      CHECK(simulated.error < 0.02 * simulated.mean);
      CHECK(std::abs((simulated.mean - expected).count()) < 4 * simulated.error.count());
    }
  }
}

TEST_CASE("failures: of all whole numbers of steps the chosen one loses at most 0.1 % more") {
  for (const FailureRates& rates : cases) {
    for (const Seconds step : {1s, 40s, 600s}) {
      double best = 0;
      for (std::int64_t steps = 1; steps <= 20'000; ++steps) {
        best = std::max(best, goodput(rates, static_cast<double>(steps) * step));
      }
      const Goodput found = goodput_of(rates, step);
      CAPTURE(rates.mtbf.count());
      CAPTURE(step.count());
      CHECK(found.interval.count() ==
            testing::approx(static_cast<double>(found.steps_between) * step.count()));
      CHECK(found.share == goodput(rates, found.interval));
      CHECK(found.share <= best);
      CHECK(found.share >= 0.999 * best);
    }
  }
}

TEST_CASE("failures: rates add up over the devices that compute and their machines") {
  // Four T4: n0.gpu0 computes with its own 100 h, n1.gpu0 with 50 h of --mtbf; machines 400 h.
  Cluster cluster = cluster_of("", "mtbf = \"400 h\"");
  cluster.devices[0].upkeep.mtbf = 100h;
  const FailureOptions options{Seconds{50h}, "30 s", 60s};
  const std::vector<Seconds> both{1s, 0s, 1s, 0s};
  const FailureRates rates = failure_rates(options, cluster, both, {});
  CHECK(rates.mtbf / 1h == testing::approx(1 / (0.01 + 0.02 + 2 * 0.0025)));
  CHECK(rates.write == 30s);
  CHECK(rates.restart == 60s);
  const std::vector<Seconds> one{1s, 0s, 0s, 0s};
  CHECK(failure_rates(options, cluster, one, {}).mtbf / 1h == testing::approx(1 / 0.0125));
}

TEST_CASE("failures: a checkpoint at a rate takes the weights and the optimizer's states") {
  // Adam in bf16: 2 bytes, and 12 of the fp32 weight and two moments.
  const Network network = networks::load_network("lenet5", {}, "");
  const std::int64_t parameters = parameter_count(network);
  CHECK(checkpoint_bytes(network, Precision::bf16, Optimizer::adam) == Bytes{14 * parameters});
  CHECK(checkpoint_bytes(network, Precision::fp32, Optimizer::sgd) == Bytes{4 * parameters});
  const std::vector<Seconds> busy(4, 1s);
  CHECK(failure_rates({Seconds{1h}, "2 GB/s", 0s}, cluster_of(""), busy, Bytes{6'000'000'000})
            .write == 3s);
}

TEST_CASE("failures: what lacks or cannot be read is refused") {
  const Cluster cluster = cluster_of("");
  CHECK_NOTHROW(check_failures({}, cluster));
  CHECK_NOTHROW(check_failures({Seconds{1h}, "1 min", 0s}, cluster));
  CHECK_NOTHROW(check_failures({{}, "1 min", 0s}, cluster_of(", mtbf = \"9 h\"")));
  CHECK(
      testing::refusal_of([&] {
        check_failures({{}, "1 min", 0s}, cluster);
      }) ==
      "--mtbf: missing, and 'n0.gpu0' of cluster 'two' has no mtbf of its own; accepted: the mean "
      "time between failures of one GPU, as in 50000h, or mtbf = \"50000 h\" of each GPU's type, "
      "of GPUs in a cluster file");
  CHECK(testing::refusal_of([&] {
          check_failures({Seconds{1h}, "0 GB/s", 0s}, cluster);
        }) ==
        "--checkpoint-write: '0 GB/s'; accepted: how long a checkpoint stops the training, as in "
        "60s, or the rate of the storage, as in 20GB/s");
  CHECK(testing::refusal_of([&] {
          check_failures({Seconds{0}, "1 s", 0s}, cluster);
        }) == "--mtbf: '0s'; accepted: a positive time");
  CHECK(testing::refusal_of([] { (void)cluster_of(", mtbf = \"0 h\""); }) ==
        "two.toml:5:nodes.devices.mtbf: the number is 0; accepted: a positive number");
}

}  // namespace parsim::experiment
