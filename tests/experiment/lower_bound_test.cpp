#include "experiment/lower_bound.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/errors.hpp"
#include "core/random.hpp"
#include "core/timeline.hpp"
#include "lowering/lower.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/tiny_networks.hpp"
#include "tests/support/world.hpp"

namespace parsim::experiment {
namespace {

using testing::World;

/// By type of device, seconds if one of that type did all of it.
using WorkCosts = std::vector<double>;

/// Without what must follow each other.
double least_makespan(const std::vector<WorkCosts>& costs,
                      const std::vector<std::int64_t>& counts) {
  std::vector<Divided> work;
  for (const WorkCosts& one : costs) {
    DividedWork& added = work.emplace_back().work;
    for (const double seconds : one) added.all.push_back({0, seconds});
    added.forward = added.backward = std::vector<PartTime>(one.size());
  }
  return experiment::least_makespan(work, counts);
}

std::vector<WorkCosts> random_work(Random& random, std::size_t types) {
  std::vector<WorkCosts> work(1 + random.below(6));
  for (WorkCosts& costs : work) {
    for (std::size_t k = 0; k < types; ++k) {
      costs.push_back(0.1 + 0.01 * static_cast<double>(random.below(300)));
    }
  }
  return work;
}

/// Two types: type 0 takes first what it is best at, compared to type 1. The time at which both end
/// is found by halving.
double divided_in_order(std::vector<WorkCosts> work, const std::vector<std::int64_t>& counts) {
  std::sort(work.begin(), work.end(),
            [](const WorkCosts& a, const WorkCosts& b) { return a[0] / a[1] < b[0] / b[1]; });
  double low = 0, high = 1e6;
  for (int step = 0; step < 200; ++step) {
    const double time = (low + high) / 2;
    double free = time * static_cast<double>(counts[0]), others = 0;
    for (const WorkCosts& costs : work) {
      const double part = std::clamp(free / costs[0], 0.0, 1.0);
      free -= part * costs[0];
      others += (1 - part) * costs[1];
    }
    (others <= time * static_cast<double>(counts[1]) ? high : low) = time;
  }
  return high;
}

}  // namespace

TEST_CASE("lower bound: one piece of work divided among 40 types, by hand") {
  // Type k takes k + 1 seconds alone; together they do 1/1 + 1/2 + … + 1/40 of it in a second.
  WorkCosts costs;
  double per_second = 0;
  for (int k = 0; k < 40; ++k) {
    costs.push_back(k + 1);
    per_second += 1.0 / (k + 1);
  }
  CHECK(least_makespan({costs}, std::vector<std::int64_t>(40, 1)) ==
        testing::approx(1 / per_second));
}

TEST_CASE("lower bound: work divided among devices, by hand") {
  CHECK(least_makespan(std::vector<WorkCosts>{{6}, {2}}, {4}) == testing::approx(2));
  // Each type does what it is good at.
  CHECK(least_makespan(std::vector<WorkCosts>{{1, 10}, {10, 1}}, {1, 1}) == testing::approx(1));
  // Twice as fast: two thirds of the work.
  CHECK(least_makespan(std::vector<WorkCosts>{{3, 6}}, {1, 1}) == testing::approx(2));
}

TEST_CASE("lower bound: work divided among two types as the best order does") {
  Random random(1);
  for (int round = 0; round < 200; ++round) {
    const std::vector<WorkCosts> work = random_work(random, 2);
    const std::vector<std::int64_t> counts{static_cast<std::int64_t>(1 + random.below(4)),
                                           static_cast<std::int64_t>(1 + random.below(4))};
    CHECK(least_makespan(work, counts) ==
          testing::approx(divided_in_order(work, counts)).epsilon(1e-6));
  }
}

TEST_CASE("lower bound: no division of work among three types takes less time") {
  Random random(2);
  for (int round = 0; round < 200; ++round) {
    const std::vector<WorkCosts> work = random_work(random, 3);
    const std::vector<std::int64_t> counts{2, 1, 3};
    const double bound = least_makespan(work, counts);
    double least = std::numeric_limits<double>::infinity();
    for (int division = 0; division < 200; ++division) {
      std::vector<double> busy(3, 0);
      for (const WorkCosts& costs : work) {
        double left = 1;
        for (std::size_t k = 0; k < 3; ++k) {
          const double part = k == 2 ? left : left * 0.1 * static_cast<double>(random.below(11));
          busy[k] += part * costs[k] / static_cast<double>(counts[k]);
          left -= part;
        }
      }
      least = std::min(least, *std::max_element(busy.begin(), busy.end()));
    }
    CHECK(bound <= least * (1 + 1e-9));
  }
}

TEST_CASE("lower bound: no random plan of a tiny network is faster") {
  const int plans = testing::long_tests() ? 100 : 6;
  for (const char* mix :
       {"v100-sxm2", "p100-sxm2*2+v100-sxm2*3", "t4*2+l40s*1+v100-sxm2*1+p100-sxm2*1"}) {
    for (const Network& network : testing::tiny_networks()) {
      for (int seed = 1; seed <= plans; ++seed) {
        const World world(network,
                          topologies::load_cluster(
                              fmt::format("star:5,device={},rate=1TB/s,latency=0us", mix), "test"));
        strategies::StrategyInput input = world.input(8);
        const Plan plan = testing::random_plan(network, 4, 8, static_cast<std::uint64_t>(seed));
        input.optimizer = plan.optimizer;
        input.precision = plan.precision;
        input.reduce_precision = plan.reduce_precision;
        const Seconds step =
            makespan(world.simulator->run(lowering::lower(network, world.cluster, plan)));
        std::vector<DeviceId> devices;
        for (std::size_t d = 0; d < world.cluster.devices.size(); ++d) devices.emplace_back(d);
        const auto bound = least_step(input, devices);
        REQUIRE(bound.has_value());
        CHECK(*bound > Seconds{0});
        CHECK(*bound <= step * (1 + 1e-9));
      }
    }
  }
}

TEST_CASE("lower bound: no strategy's plan is faster, on random networks and clusters") {
  const std::uint64_t cases = testing::long_tests() ? 120 : 6;
  int plans = 0;
  for (std::uint64_t seed = 1; seed <= cases; ++seed) {
    Random random(seed);
    const auto one_of = [&](std::initializer_list<const char*> choices) {
      return std::string(choices.begin()[random.below(choices.size())]);
    };
    const std::string network =
        one_of({"lenet5", "mlp", "hmp_cifar10", "alexnet",
                "gpt:layers=2,hidden=256,heads=8,seq_length=128,vocab_size=1024",
                "gpt:layers=2,hidden=512,heads=8,seq_length=64,vocab_size=512,attention=eager"});
    const std::string cluster =
        fmt::format("star:4,device={},rate={},latency=1us",
                    one_of({"v100-sxm2", "a100-sxm4-80*2+h100-sxm5*2", "p100-sxm2*2+v100-sxm2*2",
                            "rtx-3090*1+t4*3", "l40s*2+a100-sxm4-80*1+t4*1"}),
                    one_of({"1GB/s", "25GB/s", "1TB/s"}));
    World world(network, cluster);
    const sim::CostSource& source = sim::cost_sources()[random.below(sim::cost_sources().size())];
    sim::SimOptions options;
    options.engine = sim::Engine::fast;
    options.fusion = random.below(2) == 0 ? sim::Fusion::none : sim::Fusion::compiled;
    world.cost = source.make(world.cluster, options);
    world.simulator = sim::make_simulator(world.cluster, *world.cost, options);
    strategies::StrategyInput input = world.simulated(4 << random.below(6));
    input.budget = 30;
    input.precision = random.below(2) == 0 ? Precision::fp32 : Precision::bf16;
    input.optimizer = random.below(2) == 0 ? Optimizer::momentum : Optimizer::adam;
    std::vector<DeviceId> devices;
    for (std::size_t d = 0; d < world.cluster.devices.size(); ++d) devices.emplace_back(d);
    const auto bound = least_step(input, devices);
    REQUIRE(bound.has_value());
    std::vector<Plan> known;
    for (const strategies::Strategy& row : strategies::all()) {
      CAPTURE(network);
      CAPTURE(cluster);
      CAPTURE(row.name);
      input.known = known;
      try {
        known.push_back(row.plan(input));
      } catch (const InputError&) {  // no plan
        continue;
      }
      CHECK(*bound <= input.simulate(known.back()) * (1 + 1e-9));
      ++plans;
    }
  }
  CHECK(plans >= static_cast<int>(8 * cases));
}

TEST_CASE("lower bound: no combination of cuts of a small network is faster, all of them tried") {
  Network network;
  network.name = "two layers";
  LayerId last = add_input(network, "in", vector_shape(2048));
  for (const char* name : {"a", "b"}) {
    last = add_layer(network, fmt::format("dense {}", name), Dense{2048, false}, {last});
  }
  add_layer(network, "loss", Loss{}, {last});
  const World world(network,
                    topologies::load_cluster(
                        "star:2,device=p100-sxm2*1+v100-sxm2*1,rate=100GB/s,latency=0us", "test"));
  strategies::StrategyInput input = world.input(4096);
  const std::vector<DeviceId> both{DeviceId{0}, DeviceId{1}};
  const auto bound = least_step(input, both);
  REQUIRE(bound.has_value());
  lowering::Estimator estimator(input.step(), lowering::LinkSharing::ignored);
  Plan plan = testing::single_device_plan(network, input.batch);
  const std::size_t layers = network.layers.size();
  plan.schedule.rank_lists.at(0).devices = both;
  Seconds fastest{std::numeric_limits<double>::infinity()};
  std::vector<LayerPlan> choices{{{}, {DeviceId{0}}, {}, false, {}},
                                 {{}, {DeviceId{1}}, {}, false, {}}};
  for (int part = 1; part < 16; ++part) {
    choices.push_back({{{Dim::sample, {256 * part, 4096 - 256 * part}}}, both, {}, false, {}});
    choices.push_back({{{Dim::channel, {128 * part, 2048 - 128 * part}}}, both, {}, false, {}});
  }
  std::vector<std::size_t> digits(layers, 0);
  int tried = 0;
  for (bool more = true; more;) {
    bool possible = true;
    for (std::size_t l = 0; l < layers; ++l) {
      plan.layers[l] = choices[digits[l]];
      const bool by_channel =
          !plan.layers[l].cuts.empty() && plan.layers[l].cuts[0].dim == Dim::channel;
      possible = possible && !(by_channel && (l == 0 || l + 1 == layers));
    }
    // Inputs cost nothing; the loss is where samples are, or on one device.
    plan.layers[0] = plan.layers[1].cuts.empty() || plan.layers[1].cuts[0].dim == Dim::sample
                         ? plan.layers[1]
                         : choices[0];
    if (possible) {
      const Seconds step = estimator.step_time(plan);
      fastest = std::min(fastest, step);
      CHECK(*bound <= step * (1 + 1e-9));
      ++tried;
    }
    std::size_t l = 1;
    while (l < layers && ++digits[l] == choices.size()) digits[l++] = 0;
    more = l < layers;
  }
  MESSAGE(fmt::format("{} plans, the fastest {:.4g} ms, bound {:.4g} ms", tried,
                      fastest.count() * 1e3, bound->count() * 1e3));
  CHECK(tried > 10'000);
  CHECK(*bound >= 0.8 * fastest);
}

}  // namespace parsim::experiment
