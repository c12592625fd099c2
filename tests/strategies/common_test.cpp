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

TEST_CASE("common: in which order a cluster lists unlike machines decides nothing") {
  const std::string begin = "name = \"c\"\nswitches = [\"eth\"]\n";
  const auto machine = [](std::string_view name, int gpus, std::string_view network) {
    return fmt::format(R"(
[[nodes]]
name = "{0}"
devices = [{{ model = "v100-sxm2", count = {1} }}]
switches = ["pcie"]
links = [{{ a = "gpu*", b = "pcie", effective_rate = "20 GB/s", latency = "1 us" }}]
[[links]]
a = "{0}.pcie"
b = "eth"
effective_rate = "{2} GB/s"
latency = "5 us"
)",
                       name, gpus, network);
  };
  const std::string slow = machine("slow", 1, "0.2"), fast = machine("fast", 2, "10"),
                    third = machine("third", 2, "10");
  const auto step = [&](const Strategy& row, const std::string& file) {
    const World world("alexnet", topologies::parse_cluster(begin + file, "test"));
    StrategyInput input = world.simulated(64);
    input.budget = 200;
    return simulated_step(input, plan_of(input, row)).count();
  };
  for (const Strategy& row : all()) {
    CAPTURE(row.name);
    const double listed_last = step(row, fast + third + slow);
    CHECK(step(row, slow + fast + third) == testing::approx(listed_last).epsilon(1e-3));
  }
}
