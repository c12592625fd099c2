// Pricing one replica of each class gives the numbers of pricing all of them, to the last bit.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/routes.hpp"
#include "core/timeline.hpp"
#include "lowering/lower.hpp"
#include "lowering/unit_finder.hpp"
#include "strategies/plan_support.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/list_scheduler.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/random_replicas.hpp"
#include "tests/support/tiny_networks.hpp"
#include "tests/support/world.hpp"

namespace parsim::testing {
namespace {

/// Whether every device needs as much of everything.
bool same_memory(const std::vector<lowering::MemoryUse>& a,
                 const std::vector<lowering::MemoryUse>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](const lowering::MemoryUse& x, const lowering::MemoryUse& y) {
                      return x.weights == y.weights && x.gradients == y.gradients &&
                             x.optimizer_state == y.optimizer_state &&
                             x.activations == y.activations && x.communication == y.communication;
                    });
}

struct Compared {
  std::size_t plans = 0, folded = 0, sharded = 0;
};

/// Estimates and memory with and without units; and the list schedule of all operations.
void compare(const World& world, std::uint64_t seed, std::size_t count, Compared& compared) {
  strategies::StrategyInput input = world.input(units_batch);
  lowering::StepInput whole = input.step();
  whole.folds = false;
  lowering::PriceCache prices(input.step());
  input.prices = &prices;
  lowering::UnitFinder finder(world.cluster, world.cost.get());
  lowering::UnitFinder::Folded unit;
  ReplicatedPlans plans(world, seed);
  lowering::Estimator queued(input.step()), alone(input.step(), lowering::LinkSharing::ignored);
  lowering::Estimator all_queued(whole), all_alone(whole, lowering::LinkSharing::ignored);
  for (std::size_t i = 0; i < count; ++i) {
    const Plan plan = plans.next();
    CAPTURE(world.network.name);
    CAPTURE(world.cluster.name);
    CAPTURE(seed);
    CAPTURE(i);
    ++compared.plans;
    if (finder.fold(plan, unit)) {
      ++compared.folded;
      if (plan.layers[0].zero.stage > 0) ++compared.sharded;
      CHECK(unit.units->count() > 1);
    }
    CHECK(queued.step_time(plan) == all_queued.step_time(plan));
    CHECK(alone.step_time(plan) == all_alone.step_time(plan));
    CHECK(same_memory(queued.memory(plan), all_queued.memory(plan)));
    CHECK(
        same_memory(prices.memory(plan), lowering::memory_use(world.network, world.cluster, plan)));
    if (i % 4 != 0) continue;
    const auto [dag, memory] = lowering::lower_with_memory(world.network, world.cluster, plan);
    CHECK(same_memory(prices.memory(plan), memory));
    if (dag.size() > 1500) continue;  // the schedule takes quadratic time
    Seconds end{};
    for (const Span& span : list_schedule(dag, durations_alone(dag, *world.cost)))
      end = std::max(end, span.end);
    CHECK(alone.step_time(plan).count() == testing::approx(end.count()).epsilon(1e-9));
  }
}

TEST_CASE("estimate: one of several equal replicas costs what all of them do, on random plans") {
  Compared compared;
  std::uint64_t seed = 1;
  const std::size_t more = long_tests() ? 4 : 1;
  for (const std::string& cluster : clusters_with_replicas()) {
    for (const Network& network : tiny_networks()) {
      const World world(network, topologies::load_cluster(cluster, "test"));
      compare(world, seed++, 2 * more, compared);
    }
    const World world("gpt:layers=4,hidden=64,heads=4,seq_length=32,vocab_size=128", cluster);
    compare(world, seed++, 10 * more, compared);
  }
  CHECK(compared.plans > 125 * more);
  CHECK(compared.folded > 50 * more);
  CHECK(compared.sharded > 25 * more);
}

TEST_CASE("estimate: replicas of unequal devices, shares or links are of several classes") {
  using Sizes = std::vector<std::size_t>;  // of the classes
  const auto classes = [](const World& world, const Plan& plan) {
    lowering::UnitFinder finder(world.cluster, world.cost.get());
    lowering::UnitFinder::Folded unit;
    Sizes sizes;
    if (!finder.fold(plan, unit)) return sizes;
    for (const std::vector<std::size_t>& one : unit.units->classes) sizes.push_back(one.size());
    return sizes;
  };
  const World equal("lenet5", "nodes:4x2,device=v100-sxm2,intra=50GB/s,inter=10GB/s");
  Plan plan = strategies::plan_data(equal.input(units_batch));
  CHECK(classes(equal, plan) == Sizes{8});
  // A pipeline over the machines: replicas side by side share the machines' cables.
  strategies::StrategyInput input = equal.input(units_batch);
  input.tensor_parallel = 1;
  input.pipeline_parallel = 2;
  input.data_parallel = 4;
  input.micro_batches = 2;
  CHECK(classes(equal, strategies::plan_tensor(input)) == Sizes{2});
  for (LayerPlan& layer : plan.layers) {
    layer.cuts[0].sizes.edit()[0] -= 1;
    layer.cuts[0].sizes.edit()[1] += 1;
  }
  CHECK(classes(equal, plan) == Sizes{1, 1, 6});
  const World mixed("lenet5", "nodes:4x2,device=p100-sxm2*4+v100-sxm2*4,intra=50GB/s,inter=10GB/s");
  CHECK(classes(mixed, strategies::plan_data(mixed.input(units_batch))) == Sizes{4, 4});
  const World odd("lenet5", "star:4,device=p100-sxm2*1+v100-sxm2*3,rate=10GB/s,latency=1us");
  CHECK(classes(odd, strategies::plan_data(odd.input(units_batch))) == Sizes{1, 3});
  // One of the links within machines is slower than the others.
  Cluster links =
      topologies::load_cluster("nodes:4x2,device=v100-sxm2,intra=50GB/s,inter=10GB/s", "test");
  Routes routes(links);
  const LinkId slow = routes.between(DeviceId{2}, DeviceId{3}).hops[0].link;
  links.links[slow.index()].rate.value /= 2;
  const World slow_link("lenet5", std::move(links));
  strategies::StrategyInput groups = slow_link.input(units_batch);
  groups.tensor_parallel = 2;
  groups.pipeline_parallel = 1;
  groups.data_parallel = 4;
  CHECK(classes(slow_link, strategies::plan_tensor(groups)) == Sizes{3, 1});
}

}  // namespace
}  // namespace parsim::testing
