// What the hypergraph strategy makes of other strategies' plans, and that it does not lose to them.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "core/dag_traffic.hpp"
#include "lowering/estimate.hpp"
#include "lowering/lower.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "strategies/hypergraph/search.hpp"
#include "strategies/price.hpp"
#include "strategies/shares.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/meaning.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/world.hpp"
#include "topologies/topologies.hpp"

namespace parsim::strategies::hypergraph {
namespace {

using testing::World;

const char* const equal = "star:4,device=p100-sxm2,rate=20GB/s,latency=1us";
const char* const unequal = "star:4,device=p100-sxm2*2+v100-sxm2*2,rate=5GB/s,latency=5us";

const Start* start_named(const std::vector<Start>& starts, std::string_view name) {
  const auto at = std::find_if(starts.begin(), starts.end(),
                               [&](const Start& start) { return start.name == name; });
  return at == starts.end() ? nullptr : &*at;
}

/// By device, multiply-accumulates of a step, as the unweighted models count them.
std::vector<double> work_of(const World& world, const Plan& plan) {
  std::vector<double> work(world.cluster.devices.size(), 0);
  const Network& network = world.network;
  const std::int64_t samples = plan.batch / plan.schedule.micro_batches;
  for (std::size_t l = 1; l < network.layers.size(); ++l) {
    const LayerId id{l};
    const double passes = network[id].inputs[0] == LayerId{0} ? 2 : 3;  // no gradient of the data
    for (const Cell& cell : cells(network, id, plan.layers[l], samples)) {
      work[cell.device.index()] +=
          passes * plan.schedule.micro_batches *
          forward_flops(network[id].kind, input_shapes(network, id), network[id].out, cell.part)
              .value;
    }
  }
  return work;
}

}  // namespace

TEST_CASE(
    "hypergraph: model U moves no more than data, owt, model-even and pipeline move, where "
    "they are balanced") {
  struct Case {
    const char* network;
    std::size_t devices;
    std::size_t balanced;  ///< of the four
  };
  for (const auto& [name, devices, balanced] :
       {Case{"lenet5", 4, 2}, Case{"resnet18", 4, 3}, Case{"alexnet_grouped", 4, 3},
        Case{"alexnet_grouped", 16, 3}, Case{"vgg16", 8, 3}, Case{"vgg16", 16, 3}}) {
    CAPTURE(name);
    CAPTURE(devices);
    const World world(name, testing::star_of(devices, "10 GB/s", "1us"));
    const StrategyInput input = world.input(128);
    const Recipe recipe{"U", true, Balance::work, 0.05, 1};
    const Candidate found = candidate_of(input, recipe, starts_of(input));
    CHECK(found.partition.balanced());
    const Bytes moved = bytes_moved(lowering::lower(world.network, world.cluster, found.plan));
    CHECK(moved == Bytes{4 * found.elements});
    std::size_t compared = 0;
    for (Plan (*make)(const StrategyInput&) :
         {plan_data, plan_owt, plan_model_even, plan_pipeline}) {
      const Plan start = make(input);
      CAPTURE(start.strategy);
      const std::vector<double> work = work_of(world, start);
      const double mean =
          std::accumulate(work.begin(), work.end(), 0.0) / static_cast<double>(devices);
      if (*std::max_element(work.begin(), work.end()) > 1.05 * mean) continue;
      ++compared;
      CHECK(moved <= bytes_moved(lowering::lower(world.network, world.cluster, start)));
    }
    CHECK(compared == balanced);
  }
}

TEST_CASE("hypergraph: blocks of samples end where starts cut") {
  const World world("lenet5", "star:3,device=p100-sxm2,rate=20GB/s,latency=1us");
  const std::vector<Start> starts{{"data", plan_data(world.input(10))}};  // 4, 3 and 3 samples
  CHECK(sample_blocks(world.network, 10, 2, 1, {}) == std::vector<std::int64_t>{5, 5});
  CHECK(sample_blocks(world.network, 10, 2, 1, starts) == std::vector<std::int64_t>{4, 1, 2, 3});
  CHECK(sample_blocks(world.network, 10, 2, 5, starts) ==
        std::vector<std::int64_t>{5, 5});  // no pipeline
  CHECK(sample_blocks(world.network, 10, 1, 1, starts) == std::vector<std::int64_t>{4, 3, 3});
  CHECK(sample_blocks(world.network, 2, 16, 1, {}) == std::vector<std::int64_t>{1, 1});
}

TEST_CASE("hypergraph: partitions of starts that say all of their plans") {
  for (const char* machines : {equal, unequal}) {
    const World world("alexnet_grouped", machines);
    const StrategyInput input = world.input(64);
    const std::vector<Start> starts = starts_of(input);
    CHECK((start_named(starts, "data, shares proportional") != nullptr) == (machines == unequal));
    for (const Start& start : starts) {
      CAPTURE(start.name);
      const Candidate candidate = candidate_of_start(input, start);
      CHECK(bytes_moved(lowering::lower(world.network, world.cluster, candidate.plan)) ==
            Bytes{4 * candidate.elements});
      if (candidate.start_itself) CHECK(candidate.plan.layers == start.plan.layers);
      // Not `pipeline`: its stages may begin at layers that are part of the vertices before.
      const bool simple = start.name.starts_with("data") || start.name == "owt";
      if (simple || start.name == "model-even") CHECK(candidate.start_itself);
    }
    // Partial sums of contractions are no partition of filters.
    const Start* model = start_named(starts, "model");
    REQUIRE(model != nullptr);
    CHECK_FALSE(candidate_of_start(input, *model).start_itself);
  }
}

TEST_CASE("hypergraph: never slower than the starts that are partitions, simulated") {
  for (const auto& [name, machines] :
       {std::pair{"lenet5", equal}, {"lenet5", unequal}, {"alexnet_grouped", unequal}}) {
    CAPTURE(machines);
    CAPTURE(name);
    const World world(name, machines);
    const StrategyInput input = world.simulated(64);
    const std::vector<Start> starts = starts_of(input);
    const Price price = simulated_price(input, plan_hypergraph(input));
    for (const Start& start : starts) {
      CAPTURE(start.name);
      if (candidate_of_start(input, start).start_itself)
        CHECK_FALSE(simulated_price(input, start.plan).better_than(price));
    }
  }
}

TEST_CASE("hypergraph: where nothing fits, memory becomes a constraint") {
  World world("alexnet", "star:2,device=p100-sxm2,rate=20GB/s,latency=1us");
  world.cluster.devices[0].memory = Bytes{600 * 1024 * 1024};
  world.cluster.devices[1].memory = Bytes{300 * 1024 * 1024};
  const StrategyInput input = world.input(64);
  const Recipe with_memory = memory_recipes_of(input, 2)[0];
  Recipe without = with_memory;
  without.balance = Balance::work;
  CHECK_FALSE(fits(input, candidate_of(input, without, {}).plan));
  CHECK(fits(input, candidate_of(input, with_memory, {}).plan));
  const Plan plan = plan_hypergraph(input);
  CHECK(fits(input, plan));
  CHECK(plan.notes[0].find(with_memory.name) == 0);
}

TEST_CASE("hypergraph: without a simulator the estimate chooses, also among starts") {
  const World world("alexnet_grouped", unequal);
  const StrategyInput input = world.input(64);
  const Seconds step = lowering::Estimator(input.step()).step_time(plan_hypergraph(input));
  for (const Start& start : starts_of(input)) {
    if (candidate_of_start(input, start).start_itself)
      CHECK(step <= lowering::Estimator(input.step()).step_time(start.plan));
  }
}

TEST_CASE("hypergraph: work by time counts layers that have no multiply-accumulates") {
  const World world("resnet18", unequal);
  const StrategyInput input = world.input(64);
  const std::vector<DeviceId> devices{DeviceId{0}, DeviceId{1}, DeviceId{2}, DeviceId{3}};
  const std::vector<double> times = layer_times(input, devices);
  CHECK(std::accumulate(times.begin(), times.end(), 0.0) == testing::approx(4.0));
  double without = 0;
  for (std::size_t l = 0; l < times.size(); ++l) {
    const LayerKind& kind = world.network.layers[l].kind;
    if (kind.as<Conv>() == nullptr && kind.as<Dense>() == nullptr) without += times[l];
  }
  CHECK(without > 0.4);  // a tenth of the step, nothing in multiply-accumulates
  // Of one device: its own times.
  const std::vector<double> alone = layer_times(input, {devices[0]});
  const lowering::GradientFlow flow = lowering::gradient_flow(world.network);
  const auto time = [&](std::size_t l) {
    const Part part{whole(world.network.layers[l].out, 64), {}};
    return layer_time(input, flow, LayerId{l}, part, devices[0]).count();
  };
  double all = 0;
  for (std::size_t l = 0; l < alone.size(); ++l) all += time(l);
  CHECK(alone[1] == testing::approx(time(1) / all));
}

}  // namespace parsim::strategies::hypergraph
