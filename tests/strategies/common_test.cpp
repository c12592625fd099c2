// What every row of the table of strategies must do in corners: one device, more devices than
// samples, a device a hundred times slower than the others, too little memory.
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "core/dag_traffic.hpp"
#include "core/timeline.hpp"
#include "lowering/lower.hpp"
#include "lowering/sync.hpp"
#include "sim/sim.hpp"
#include "strategies/price.hpp"
#include "strategies/strategies.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/tiny_networks.hpp"
#include "tests/support/world.hpp"
#include "topologies/cluster_file.hpp"

using namespace parsim;
using namespace parsim::strategies;
using testing::World;

namespace {

/// A tiny network on devices of these speeds.
World world_of(std::string_view name, const std::vector<std::string>& speeds) {
  std::vector<DeviceModel> models;
  for (const std::string& speed : speeds) models.push_back(testing::test_device(speed, speed));
  return {testing::tiny_network(name), testing::star_of(models, "10 GB/s", "1 us")};
}

StrategyInput briefly_asked(const World& world, std::int64_t batch) {
  StrategyInput input = world.input(batch);
  input.budget = 40;  // searches of any length must do
  return input;
}

/// True if boxes fill `whole` without overlap.
bool fill_exactly(const std::vector<Region>& boxes, const Region& whole) {
  std::int64_t volume = 0;
  for (std::size_t i = 0; i < boxes.size(); ++i) {
    if (!whole.contains(boxes[i])) return false;
    volume += boxes[i].volume();
    for (std::size_t j = 0; j < i; ++j) {
      if (!intersect(boxes[i], boxes[j]).empty()) return false;
    }
  }
  return volume == whole.volume();
}

/// Every index of every parameter is in one sum of gradients, in each replica that has any; and is
/// updated where it is.
void check_owners(const World& world, const Plan& plan) {
  std::vector<std::vector<Region>> regions(world.network.parameters.size());
  for (const lowering::SyncGroup& group :
       lowering::sync_groups(world.network, world.cluster, plan)) {
    CHECK_FALSE(group.devices.empty());
    for (const auto& [parameter, region] : group.contents) {
      std::vector<Region>& known = regions[parameter.index()];
      // Replicas repeat a region whole.
      if (std::find(known.begin(), known.end(), region) == known.end()) known.push_back(region);
    }
  }
  for (std::size_t p = 0; p < regions.size(); ++p) {
    CAPTURE(world.network.parameters[p].name);
    Region whole;
    for (const std::int64_t extent : world.network.parameters[p].extents) {
      whole.push_back({0, extent});
    }
    CHECK(fill_exactly(regions[p], whole));
  }
}

/// Every index of every layer's output is computed once in every replica.
void check_cells(const World& world, const Plan& plan) {
  const std::int64_t samples = plan.batch / plan.schedule.micro_batches;
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    const LayerId id{l};
    const auto all = cells(world.network, id, plan.layers[l], samples);
    std::int32_t replicas = 0;
    for (const Cell& cell : all) replicas = std::max(replicas, cell.replica + 1);
    for (std::int32_t r = 0; r < replicas; ++r) {
      std::vector<Region> boxes;
      for (const Cell& cell : all) {
        if (cell.replica != r) continue;
        // The share of the contraction as one more axis.
        Region box = cell.part.out;
        if (!cell.part.contraction.empty()) box.push_back(cell.part.contraction);
        boxes.push_back(box);
      }
      CAPTURE(world.network[id].name);
      Region expected = whole(world.network[id].out, samples);
      if (boxes.at(0).rank() > expected.rank()) {
        const Shape& in = world.network[world.network[id].inputs[0]].out;
        const bool conv = world.network[id].kind.as<Conv>() != nullptr;
        expected.push_back({0, conv ? in.axes.front().extent : in.axes.back().extent});
      }
      CHECK(fill_exactly(boxes, expected));
    }
  }
}

/// Plans without a simulator, lowers and runs; returns the plan.
Plan check(const World& world, const Strategy& row, std::int64_t batch) {
  CAPTURE(row.name);
  CAPTURE(world.network.name);
  const Plan plan = row.plan(briefly_asked(world, batch));
  CHECK_NOTHROW(validate(plan, world.network, world.cluster, "test"));
  CHECK(plan.batch == batch);
  check_cells(world, plan);
  check_owners(world, plan);
  const ExecDag dag = lowering::lower(world.network, world.cluster, plan);
  const Timeline timeline = world.simulator->run(dag);
  CHECK(makespan(timeline) > Seconds{0});
  return plan;
}

}  // namespace

TEST_CASE("common: every strategy works on one device and moves nothing there") {
  for (const Strategy& row : all()) {
    for (const Network& network : testing::tiny_networks()) {
      const World world = world_of(network.name, {"10 TFLOP/s"});
      const Plan plan = check(world, row, 4);
      CHECK(bytes_moved(lowering::lower(world.network, world.cluster, plan)) == Bytes{0});
    }
  }
}

TEST_CASE("common: every strategy works with more devices than samples") {
  std::size_t turns = 0;  // of neighbouring strategies each has the other's networks
  for (const Strategy& row : all()) {
    std::int64_t batch = 3;
    ++turns;
    for (const Network& network : testing::tiny_networks()) {
      if (++turns % 2 == 0 && !testing::long_tests()) continue;
      const World world =
          world_of(network.name, {"10 TFLOP/s", "10 TFLOP/s", "4 TFLOP/s", "4 TFLOP/s"});
      (void)check(world, row, batch);
      batch = 4 - batch;  // 3 and 1 in turn
    }
  }
}

TEST_CASE("common: every strategy works when one device is a hundred times slower") {
  std::size_t turns = 0;  // of neighbouring strategies each has the other's networks
  for (const Strategy& row : all()) {
    bool first = false;  // the slow device's place, in turn
    ++turns;
    for (const Network& network : testing::tiny_networks()) {
      if (++turns % 2 == 0 && !testing::long_tests()) continue;
      const World world =
          world_of(network.name,
                   first ? std::vector<std::string>{"100 GFLOP/s", "10 TFLOP/s", "10 TFLOP/s"}
                         : std::vector<std::string>{"10 TFLOP/s", "10 TFLOP/s", "100 GFLOP/s"});
      (void)check(world, row, 8);
      first = !first;
    }
  }
}

TEST_CASE("common: with too little memory every strategy still plans, and it is seen not to fit") {
  for (const Strategy& row : all()) {
    World world = world_of("residual", {"10 TFLOP/s", "10 TFLOP/s", "4 TFLOP/s"});
    CAPTURE(row.name);
    CHECK(fits(briefly_asked(world, 8), check(world, row, 8)));
    for (Device& device : world.cluster.devices) device.memory = Bytes{100};
    CHECK_FALSE(fits(briefly_asked(world, 8), check(world, row, 8)));
    for (Device& device : world.cluster.devices) device.memory = Bytes{0};
    CHECK_FALSE(fits(briefly_asked(world, 8), check(world, row, 8)));
  }
}

namespace {

struct Machines {
  std::string name, model, gpus, inside, outside;
  int count = 1;
};

/// A file that lists these machines on one network; rates in GB/s.
std::string file_of(const std::vector<Machines>& kinds) {
  std::string nodes, links;
  for (const Machines& kind : kinds) {
    nodes += fmt::format(R"(
[[nodes]]
name = "{}-"
count = {}
devices = [{{ model = "{}", count = {} }}]
switches = ["pcie"]
links = [{{ a = "gpu*", b = "pcie", effective_rate = "{} GB/s", latency = "1 us" }}]
)",
                         kind.name, kind.count, kind.model, kind.gpus, kind.inside);
    links += fmt::format(R"(
[[links]]
a = "{}-*.pcie"
b = "eth"
effective_rate = "{} GB/s"
latency = "5 us"
)",
                         kind.name, kind.outside);
  }
  return "name = \"c\"\nswitches = [\"eth\"]\n" + nodes + links;
}

/// Steps of every strategy are the same in each order in which the file lists the kinds.
void check_orders(const std::string& network, std::int64_t batch, std::vector<Machines> kinds) {
  const auto by_name = [](const Machines& a, const Machines& b) { return a.name < b.name; };
  std::sort(kinds.begin(), kinds.end(), by_name);
  std::vector<double> first;
  do {
    const std::string file = file_of(kinds);
    CAPTURE(file);
    const World world(networks::load_network(network, {}, "test"),
                      topologies::parse_cluster(file, "test"));
    // Where collectives and messages have NCCL's costs, their order counts.
    const auto simulator = sim::make_simulator(
        world.cluster, *world.cost,
        {.collectives = sim::CollectiveCost::nccl, .engine = sim::Engine::fast});
    StrategyInput input = world.input(batch);
    input.simulate = simulation(world.network, world.cluster, *world.cost, *simulator);
    input.budget = 60;
    std::size_t s = 0;
    for (const Strategy& row : all()) {
      CAPTURE(row.name);
      const double step = input.simulate(plan_of(input, row)).count();
      if (first.size() == s) first.push_back(step);
      CHECK(step == testing::approx(first[s++]).epsilon(1e-9));
    }
  } while (std::next_permutation(kinds.begin(), kinds.end(), by_name));
}

}  // namespace

TEST_CASE("common: in which order a cluster lists unlike machines decides nothing") {
  // Behind 0.2 GB/s, and listed first, a machine once came first in every plan.
  check_orders("alexnet", 64,
               {{"a", "v100-sxm2", "1", "20", "0.2"}, {"b", "v100-sxm2", "2", "20", "10", 2}});
  // The first-listed type of a stage's devices once gave the time of its updates.
  check_orders("vgg11", 32,
               {{"a", "a10g", "1", "240", "1"},
                {"b", "t4", "2", "150", "3"},
                {"c", "v100-sxm2", "1", "240", "12"}});
  // Machines that differ in their cards alone once stood as listed.
  check_orders("alexnet", 64,
               {{"a", "h100-sxm5", "1", "240", "1", 2},
                {"b", "h100-sxm5", "1", "150", "12"},
                {"c", "p100-sxm2", "1", "150", "12"}});
  // Partial sums were once sent in the order of the file's devices.
  check_orders("gpt:layers=2,hidden=512,heads=8,seq_length=256,vocab_size=8000", 10,
               {{"a", "rtx-3090", "1", "60", "25"},
                {"b", "p100-sxm2", "2", "60", "25"},
                {"c", "h100-sxm5", "1", "240", "25", 2}});
  // The first-listed machine of two GPUs once gave the rate within machines.
  check_orders("alexnet", 96, {{"a", "t4", "2", "12", "12"}, {"b", "rtx-3090", "2", "60", "12"}});
}

TEST_CASE("common: a machine more never makes best slower") {
  const auto step = [](const std::vector<Machines>& kinds) {
    const World world("vgg11", topologies::parse_cluster(file_of(kinds), "test"));
    return simulated_step(world.simulated(32), plan_best(world.simulated(32))).count();
  };
  const auto check_more = [&](std::vector<Machines> kinds, const Machines& more) {
    const double before = step(kinds);
    kinds.push_back(more);
    CAPTURE(file_of(kinds));
    CHECK(step(kinds) <= 1.001 * before);
  };
  const Machines t4{"a", "t4", "2", "150", "3"}, v100{"b", "v100-sxm2", "1", "240", "12"};
  check_more({t4, v100}, {"x", "a10g", "1", "240", "1"});
  check_more({{"a", "v100-sxm2", "2", "12", "3", 2}, {"b", "rtx-3090", "2", "150", "3"}},
             {"x", "t4", "1", "60", "25"});
  check_more({{"a", "rtx-3090", "1", "150", "3", 2}, {"b", "rtx-4090", "1", "12", "12"}},
             {"x", "rtx-3090", "1", "60", "1"});
}
