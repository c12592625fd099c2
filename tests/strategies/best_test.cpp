#include <doctest/doctest.h>

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "core/errors.hpp"
#include "lowering/memory.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "strategies/best/moves.hpp"
#include "strategies/price.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/world.hpp"
#include "topologies/topologies.hpp"

namespace parsim::strategies {
namespace {

using testing::World;

/// With a simulator, and a budget that tests can afford.
StrategyInput best_asked(const World& world, std::int64_t batch) {
  StrategyInput input = world.simulated(batch);
  input.budget = 150;
  return input;
}

/// The plans of all the other strategies that have one.
std::vector<Plan> others(const StrategyInput& input) {
  std::vector<Plan> plans;
  for (const Strategy& row : all()) {
    if (row.plan == plan_best) continue;
    try {
      plans.push_back(row.plan(input));
    } catch (const InputError&) {
    }
  }
  return plans;
}

const char* const mixed = "star:4,device=v100-sxm2*2+p100-sxm2*2,rate=5GB/s,latency=2us";

/// Price of a plan that is left after `proposals` changes, each kept if it is better by `priced`.
template <class Priced>
std::pair<Plan, Price> climb(const StrategyInput& input, const std::vector<Plan>& starts,
                             std::uint64_t seed, int proposals, const Priced& priced) {
  Plan plan = starts[seed % starts.size()];
  Price price = priced(plan, Price{0, Seconds{std::numeric_limits<double>::infinity()}});
  Moves moves(input, plan, starts, seed);
  for (int i = 0; i < proposals; ++i) {
    if (!moves.propose(plan)) continue;
    try {
      const Price now = priced(plan, price);
      if (now.better_than(price)) {
        price = now;
        continue;
      }
    } catch (const InputError&) {
    }
    moves.take_back(plan);
  }
  return {plan, price};
}

}  // namespace

TEST_CASE("best: a parameter server has all states, also where stages differ") {
  const World world("gpt:layers=2,hidden=64,heads=4,seq_length=32,vocab_size=100",
                    "star:3,device=p100-sxm2*1+v100-sxm2*2,rate=10GB/s,latency=1us");
  StrategyInput input = world.simulated(6);
  input.budget = 5;
  input.sync = Sync::Kind::server;
  const Plan plan = plan_best(input);
  CHECK_NOTHROW(validate(plan, world.network, world.cluster, "best"));
  for (const LayerPlan& layer : plan.layers) CHECK(layer.zero.stage == 0);
}

TEST_CASE("best: caches and limits choose the plan and the price that whole estimates choose") {
  std::size_t moved = 0;
  for (const auto& [network, cluster, memory] :
       {std::tuple{"lenet5", "nodes:2x2,device=p100-sxm2,intra=20GB/s,inter=1GB/s", 0.0},
        {"alexnet", mixed, 0.0},
        {"alexnet", mixed, 0.99}}) {  // no plan fits
    const World world(network, cluster);
    StrategyInput input = world.input(64);
    input.headroom.share = memory;
    const std::vector<Plan> starts = others(input);
    for (std::uint64_t seed = 1; seed <= (testing::long_tests() ? 6U : 3U); ++seed) {
      lowering::PriceCache prices(input.step());
      StrategyInput sharing = input;
      sharing.prices = &prices;
      lowering::Estimator estimator(sharing.step());
      const auto quick =
          climb(sharing, starts, seed, 120, [&](const Plan& plan, const Price& limit) {
            return estimated_price(sharing, estimator, plan, limit);
          });
      const auto whole = climb(input, starts, seed, 120, [&](const Plan& plan, const Price&) {
        lowering::Estimator once(input.step());
        const Seconds step = once.step_time(plan);
        return Price{overcommit(input, plan), step};
      });
      CAPTURE(network);
      CAPTURE(seed);
      CHECK(quick.first == whole.first);
      CHECK(quick.second.overcommit == whole.second.overcommit);
      CHECK(quick.second.step == whole.second.step);
      if (quick.first != starts[seed % starts.size()]) ++moved;
      CHECK(prices.counts().known < prices.counts().plans);
    }
  }
  CHECK(moved > (testing::long_tests() ? 6U : 3U));
}

TEST_CASE(
    "best_by_simulation: leaves out the plans that estimates rule out, and chooses the same") {
  std::size_t simulated = 0, given = 0;
  for (const auto& [network, cluster] :
       {std::pair{"lenet5", "nodes:2x2,device=p100-sxm2,intra=20GB/s,inter=1GB/s"},
        {"alexnet", mixed},
        {"vgg16", "star:4,device=v100-sxm2,rate=1GB/s,latency=2us"},
        {"gpt:layers=2,hidden=64,heads=2,seq_length=32", mixed}}) {
    const World world(network, cluster);
    StrategyInput input = world.simulated(32);
    const std::vector<Plan> plans = others(world.input(32));
    std::size_t least = 0;
    for (std::size_t i = 1; i < plans.size(); ++i) {
      const Price price = simulated_price(input, plans[i]);
      if (price.better_than(simulated_price(input, plans[least]))) least = i;
    }
    const auto simulate = input.simulate;
    input.simulate = [&](const Plan& plan) {
      ++simulated;
      return simulate(plan);
    };
    given += plans.size();
    CAPTURE(network);
    CHECK(best_by_simulation(input, plans) == least);
  }
  CHECK(simulated > 4);
  CHECK(simulated < given);
}

TEST_CASE("best: never loses to another strategy") {
  for (const auto& [network, cluster] :
       {std::pair{"lenet5", "nodes:2x2,device=p100-sxm2,intra=20GB/s,inter=1GB/s"},
        {"alexnet", mixed}}) {
    const World world(network, cluster);
    const StrategyInput input = best_asked(world, 64);
    const std::vector<Plan> plans = others(input);
    const Plan chosen = plan_best(input);
    const Price best = simulated_price(input, chosen);
    for (const Plan& plan : plans) {
      CAPTURE(network);
      CAPTURE(plan.strategy);
      CHECK(!simulated_price(input, plan).better_than(best));
    }
    // What the caller knows already is taken, not made again, and changes nothing.
    StrategyInput informed = input;
    informed.known = plans;
    CHECK(plan_best(informed) == chosen);
  }
}

TEST_CASE("best: of many layers on many devices only what may be the best is simulated") {
  const World world("gpt:layers=12,hidden=256,heads=4,seq_length=128",
                    "nodes:4x8,device=v100-sxm2,inter=10GB/s");
  StrategyInput input = world.input(64);
  input.budget = 10;
  const std::vector<Plan> rows = others(input);
  input.known = rows;
  lowering::Estimator estimator(input.step());
  std::vector<Seconds> estimates;
  input.simulate = [&](const Plan& plan) {
    estimates.push_back(estimated_step(estimator, plan));
    return estimates.back();
  };
  static_cast<void>(plan_best(input));
  REQUIRE(estimates.size() > 1);
  const auto [least, most] = std::minmax_element(estimates.begin(), estimates.end());
  CHECK(*most <= worth_simulating_rows * *least);
}

TEST_CASE("best: local search finds what no strategy of the table has") {
  const World world("alexnet", mixed);
  StrategyInput input = best_asked(world, 64);
  input.budget = 1500;
  Price least;
  for (const Plan& plan : others(input)) {
    const Price price = simulated_price(input, plan);
    if (price.better_than(least) || least.step == Seconds{}) least = price;
  }
  CHECK(simulated_price(input, plan_best(input)).better_than(least));
}

TEST_CASE("best: a plan that fits beats a faster one that does not") {
  World world("vgg16", mixed);
  const StrategyInput input = best_asked(world, 64);
  // Just enough room for the least demanding of the other strategies.
  Bytes least{std::numeric_limits<std::int64_t>::max()};
  for (const Plan& plan : others(input)) {
    Bytes most{};
    for (const lowering::MemoryUse& use :
         lowering::memory_use(world.network, world.cluster, plan)) {
      most = std::max(most, use.total());
    }
    least = std::min(least, most);
  }
  for (Device& device : world.cluster.devices) device.memory = least;
  const std::vector<Plan> plans = others(input);
  const auto fitting = std::count_if(plans.begin(), plans.end(),
                                     [&](const Plan& plan) { return fits(input, plan); });
  REQUIRE(fitting > 0);
  REQUIRE(fitting < std::ssize(plans));
  StrategyInput informed = input;
  informed.known = plans;
  CHECK(fits(input, plan_best(informed)));
}

TEST_CASE("best: searches report their progress, and are not changed by it") {
  const World world("lenet5", mixed);
  for (Plan (*plan)(const StrategyInput&) : {plan_best, plan_hypergraph}) {
    StrategyInput input = best_asked(world, 64);
    const Plan silent = plan(input);
    std::vector<double> shares;
    input.progress = [&](double share) { shares.push_back(share); };
    CHECK(plan(input) == silent);
    REQUIRE(shares.size() >= 5);
    CHECK(shares.front() == 0);
    CHECK(shares.back() > 0.8);
    CHECK(shares.back() <= 1);
    CHECK(std::is_sorted(shares.begin(), shares.end()));
  }
}

TEST_CASE("best: a change that is taken back leaves no trace") {
  const World world("alexnet", mixed);
  const StrategyInput input = best_asked(world, 64);
  const std::vector<Plan> plans = others(input);
  for (const Plan& start : plans) {
    Moves moves(input, start, plans, 7);
    Plan plan = start;
    std::size_t changed = 0;
    const auto check = [&](bool proposed) {
      if (!proposed) {
        CHECK(plan == start);
        return;
      }
      changed += plan == start ? 0 : 1;
      moves.take_back(plan);
      REQUIRE(plan == start);
    };
    CAPTURE(start.strategy);
    for (std::size_t i = 0; i < moves.listed(); ++i) check(moves.propose(plan, i));
    CHECK(std::exchange(changed, 0) > 5);
    for (int i = 0; i < 200; ++i) check(moves.propose(plan));
    CHECK(changed > 20);
  }
}

}  // namespace parsim::strategies
