#include "lowering/estimate.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>

#include "core/errors.hpp"
#include "core/random.hpp"
#include "core/timeline.hpp"
#include "lowering/lower.hpp"
#include "networks/networks.hpp"
#include "sim/sim.hpp"
#include "strategies/strategies.hpp"
#include "strategies/tensor/arrangement.hpp"
#include "tests/support/approx.hpp"
#include "tests/support/list_scheduler.hpp"
#include "tests/support/long_tests.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/tiny_networks.hpp"
#include "tests/support/world.hpp"
#include "tests/support/zero_groups.hpp"
#include "topologies/topologies.hpp"

namespace parsim::testing {
namespace {

Seconds list_scheduled(const ExecDag& dag, const CostModel& cost) {
  Seconds end{};
  for (const Span& span : list_schedule(dag, durations_alone(dag, cost))) {
    end = std::max(end, span.end);
  }
  return end;
}

constexpr std::int64_t batch = 8;

/// That estimates of random plans are the list schedules of what they are lowered to; how many.
template <class RandomPlan>
std::size_t compare_with_list_schedules(std::uint64_t seeds, RandomPlan random) {
  const Cluster cluster =
      topologies::load_cluster("star:5,device=p100-sxm2,rate=10GB/s,latency=1us", "test");
  const auto cost = sim::make_constant_efficiency(cluster);
  std::size_t compared = 0;
  for (const Network& network : tiny_networks()) {
    strategies::StrategyInput input{network, cluster, *cost};
    input.batch = batch;
    lowering::Estimator estimator(input.step(), lowering::LinkSharing::ignored);
    for (std::uint64_t seed = 1; seed <= seeds; ++seed) {
      Plan plan = random(network, seed);
      if (seed % 3 == 1) plan = with_split_states(std::move(plan), seed);
      if (seed % 6 == 1) plan = with_zero_groups(std::move(plan), network, cluster, seed);
      plan.schedule.blocking_sends = seed % 4 == 3;
      const double expected =
          list_scheduled(lowering::lower(network, cluster, plan), *cost).count();
      CAPTURE(network.name);
      CAPTURE(seed);
      CHECK(std::abs(estimator.step_time(plan).count() / expected - 1) < 1e-9);
      ++compared;
    }
  }
  return compared;
}

TEST_CASE("estimate: equals the list schedule of the lowered plan on random plans") {
  const std::size_t compared = compare_with_list_schedules(
      long_tests() ? 60 : 18, [](const Network& network, std::uint64_t seed) {
        return random_plan(network, 4, batch, seed);
      });
  CHECK(compared > 100);
}

TEST_CASE("estimate: equals the list schedule of replicas that split states in groups") {
  const std::size_t compared = compare_with_list_schedules(
      long_tests() ? 30 : 12, [](const Network& network, std::uint64_t seed) {
        return random_replicated_plan(network, 4, batch, seed);
      });
  CHECK(compared > 100);
}

TEST_CASE("estimate: equals the list schedule of interleaved pipelines") {
  const std::size_t compared =
      compare_with_list_schedules(8, [](const Network& network, std::uint64_t seed) {
        return random_interleaved_plan(network, 4, batch, seed);
      });
  CHECK(compared > 20);
}

/// Forward of a dense layer takes a second, backward two; nothing else takes any time.
class DenseOnly final : public CostModel {
 public:
  Cost compute(const Network& network, LayerId layer, const Part&, Pass pass, DeviceId,
               Precision) const override {
    const bool first = layer.index() == 1;  // it has no gradient to pass on
    const bool counts = network[layer].kind.as<Dense>() != nullptr &&
                        (pass == Pass::forward || first == (pass == Pass::backward_weights));
    return {Seconds{!counts ? 0.0 : pass == Pass::forward ? 1.0 : 2.0}, Origin::guessed};
  }
  Cost memory(DeviceId, Bytes) const override { return {Seconds{0}, Origin::guessed}; }
  Seconds transfer(DeviceId, DeviceId, Bytes) const override { return Seconds{0}; }
  Seconds collective(CollectiveKind, std::span<const DeviceId>, Bytes) const override {
    return Seconds{0};
  }
  std::string summary() const override { return "dense"; }
};

TEST_CASE("estimate: interleaved 1F1B takes (m·v + p - 1) / v of a device's passes") {
  for (const auto& [devices, chunks, micro_batches] :
       {std::array{2, 2, 4}, {4, 2, 8}, {4, 2, 4}, {3, 4, 6}, {2, 3, 12}, {4, 1, 8}}) {
    CAPTURE(devices);
    CAPTURE(chunks);
    CAPTURE(micro_batches);
    const int stages = devices * chunks;
    std::string text = "x: vector 8";
    for (int s = 0; s < stages; ++s) text += "; d" + std::to_string(s) + ": dense 8";
    const Network network = network_of(text + "; loss");
    const Cluster cluster = star_of(static_cast<std::size_t>(devices), "10 GB/s", "1us");
    const DenseOnly cost;
    strategies::StrategyInput input{network, cluster, cost};
    input.batch = micro_batches;
    input.micro_batches = micro_batches;
    input.tensor_parallel = input.data_parallel = 1;
    input.pipeline_parallel = devices;
    input.virtual_pipeline = chunks;
    const Plan plan = strategies::plan_tensor(input);
    lowering::Estimator estimator(input.step(), lowering::LinkSharing::ignored);
    const double expected = 3 * (micro_batches * chunks + devices - 1);
    CHECK(std::abs(estimator.step_time(plan).count() - expected) < 1e-9);
    CHECK(std::abs(list_scheduled(lowering::lower(network, cluster, plan), cost).count() -
                   expected) < 1e-9);
    // By the closed form, too, as long as all hand-overs are free.
    const auto parts = static_cast<std::size_t>(devices);
    strategies::tensor::Arranging arranging(input);
    CHECK(std::abs(arranging
                       .arrange({1, parts, 1, micro_batches, static_cast<std::size_t>(chunks)},
                                devices_of(cluster, DeviceKind::gpu))
                       .cut.step -
                   expected) < 1e-9);
  }
}

// Neighbours of a pipeline are at the end of a pass at the same time: 1F1B loses nothing to
// blocking sends if messages take no time, (m + p - 1) passes forward and backward.
TEST_CASE("estimate: equal stages with blocking sends wait for messages only") {
  for (const auto& [devices, micro_batches] : {std::array{2, 4}, {3, 9}, {4, 8}, {5, 5}}) {
    std::string text = "x: vector 8";
    for (int s = 0; s < devices; ++s) text += "; d" + std::to_string(s) + ": dense 8";
    const Network network = network_of(text + "; loss");
    const Cluster cluster = star_of(static_cast<std::size_t>(devices), "10 GB/s", "1us");
    const DenseOnly cost;
    strategies::StrategyInput input{network, cluster, cost};
    input.batch = micro_batches;
    input.micro_batches = micro_batches;
    input.tensor_parallel = input.data_parallel = 1;
    input.pipeline_parallel = devices;
    input.pipeline_sends = strategies::PipelineSends::blocking;
    const Plan plan = strategies::plan_tensor(input);
    CHECK(plan.schedule.blocking_sends);
    lowering::Estimator estimator(input.step(), lowering::LinkSharing::ignored);
    const double expected = 3 * (micro_batches + devices - 1);
    CAPTURE(devices);
    CHECK(std::abs(estimator.step_time(plan).count() - expected) < 1e-9);
    CHECK(std::abs(list_scheduled(lowering::lower(network, cluster, plan), cost).count() -
                   expected) < 1e-9);
  }
}

TEST_CASE("estimate: sums of another size than the kernels' are priced as lower() makes them") {
  const Cluster cluster =
      topologies::load_cluster("star:5,device=v100-sxm2,rate=10GB/s,latency=1us", "test");
  const auto cost = sim::make_constant_efficiency(cluster);
  for (const Network& network : tiny_networks()) {
    for (const auto& [precision, reduce] : {std::pair{Precision::fp16, Precision::fp32},
                                            {Precision::bf16, Precision::bf16},
                                            {Precision::fp32, Precision::fp16}}) {
      strategies::StrategyInput input{network, cluster, *cost};
      input.batch = batch;
      input.precision = precision;
      input.reduce_precision = reduce;
      lowering::Estimator estimator(input.step(), lowering::LinkSharing::ignored);
      for (std::uint64_t seed = 1; seed <= 6; ++seed) {
        Plan plan = random_plan(network, 4, batch, seed);
        plan.precision = precision;
        plan.reduce_precision = reduce;
        const double expected =
            list_scheduled(lowering::lower(network, cluster, plan), *cost).count();
        CAPTURE(network.name);
        CAPTURE(seed);
        CHECK(estimator.step_time(plan).count() == testing::approx(expected).epsilon(1e-9));
      }
    }
  }
}

TEST_CASE("estimate: casts to FP8 are priced as lower() makes them") {
  const Cluster cluster =
      topologies::load_cluster("star:5,device=h100-sxm5,rate=10GB/s,latency=1us", "test");
  const auto cost = sim::make_constant_efficiency(cluster);
  const Network network = networks::load_network(
      "gpt:layers=2,hidden=64,heads=4,seq_length=32,vocab_size=128", {}, "test");
  strategies::StrategyInput input{network, cluster, *cost};
  input.batch = batch;
  for (const Precision precision :
       {Precision::fp8, Precision::fp8_delayed, Precision::fp8_blockwise}) {
    input.precision = precision;
    lowering::Estimator estimator(input.step(), lowering::LinkSharing::ignored);
    for (std::uint64_t seed = 1; seed <= 6; ++seed) {
      Plan plan = random_plan(network, 4, batch, seed);
      plan.precision = precision;
      const double expected =
          list_scheduled(lowering::lower(network, cluster, plan), *cost).count();
      CAPTURE(seed);
      CHECK(estimator.step_time(plan).count() == testing::approx(expected).epsilon(1e-9));
    }
  }
}

TEST_CASE("estimate: what is remembered changes nothing") {
  const Cluster cluster =
      topologies::load_cluster("star:5,device=p100-sxm2,rate=10GB/s,latency=1us", "test");
  const auto cost = sim::make_constant_efficiency(cluster);
  for (const Network& network : tiny_networks()) {
    strategies::StrategyInput input{network, cluster, *cost};
    input.batch = batch;
    lowering::Estimator used(input.step());
    (void)used.step_time(single_device_plan(network, batch));
    Plan changing = single_device_plan(network, batch);
    changing.schedule.rank_lists[0].devices = {DeviceId{0}, DeviceId{1}};
    // One layer after the other is split.
    for (std::size_t l = 0; l < network.layers.size(); ++l) {
      if (network.layers[l].kind.as<Input>() != nullptr) continue;
      changing.layers[l].cuts = {{Dim::sample, {5, 3}}};
      changing.layers[l].devices = {DeviceId{0}, DeviceId{1}};
      lowering::Estimator fresh(input.step());
      CAPTURE(network.name);
      CHECK(used.step_time(changing) == fresh.step_time(changing));
    }
  }
}

TEST_CASE(
    "estimate: what plans with other states and sums move is remembered, and changes nothing") {
  const Cluster cluster =
      topologies::load_cluster("star:5,device=p100-sxm2,rate=10GB/s,latency=1us", "test");
  const auto cost = sim::make_constant_efficiency(cluster);
  for (const Network& network : tiny_networks()) {
    strategies::StrategyInput input{network, cluster, *cost};
    input.batch = batch;
    lowering::Estimator used(input.step());
    for (std::uint64_t seed = 1; seed <= 4; ++seed) {
      const Plan plan = random_replicated_plan(network, 4, batch, seed);
      for (std::uint64_t states = 0; states < 5; ++states) {
        Plan changed = plan;
        if (states > 0) changed = with_split_states(plan, states);
        if (states > 2) changed = with_zero_groups(changed, network, cluster, states);
        lowering::Estimator fresh(input.step());
        CAPTURE(network.name);
        CAPTURE(seed);
        CAPTURE(states);
        CHECK(used.step_time(changed) == fresh.step_time(changed));
        const auto remembered = used.memory(changed), again = fresh.memory(changed);
        for (std::size_t d = 0; d < again.size(); ++d) {
          CHECK(remembered[d].total() == again[d].total());
        }
      }
    }
  }
}

TEST_CASE("sync: what all devices of a parameter have of it is summed by all of them") {
  const Cluster cluster =
      topologies::load_cluster("star:5,device=p100-sxm2,rate=10GB/s,latency=1us", "test");
  std::size_t compared = 0;
  for (const Network& network : tiny_networks()) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      const Plan plan = random_replicated_plan(network, 4, batch, seed);
      std::map<std::pair<ParameterId, Region>, std::set<DeviceId>> expected;
      std::set<ParameterId> others;  // cut, or with further replicas
      const std::vector<std::vector<LayerId>> users = lowering::users_of_parameters(network);
      for (std::size_t p = 0; p < users.size(); ++p) {
        std::set<Region> regions;
        for (const LayerId user : users[p]) {
          const Layer& layer = network[user];
          for (const Cell& cell : cells(network, user, plan.layers[user.index()],
                                        batch / plan.schedule.micro_batches)) {
            for (std::size_t i = 0; i < layer.parameters.size(); ++i) {
              if (layer.parameters[i] != ParameterId{p}) continue;
              const Region region = parameter_region(layer.kind, input_shapes(network, user),
                                                     layer.out, i, cell.part);
              if (region.empty()) continue;
              expected[{ParameterId{p}, region}].insert(cell.device);
              if (cell.replica > 0 || cell.replicas > 1) others.insert(ParameterId{p});
              regions.insert(region);
            }
          }
        }
        if (regions.size() > 1) others.insert(ParameterId{p});
      }
      for (const lowering::SyncGroup& group : lowering::sync_groups(network, cluster, plan)) {
        for (const auto& content : group.contents) {
          if (others.contains(content.first)) continue;
          const std::set<DeviceId>& devices = expected[content];
          CHECK(group.devices == std::vector<DeviceId>(devices.begin(), devices.end()));
          CHECK(group.mirrors.empty());
          expected.erase(content);
          ++compared;
        }
      }
      for (const auto& [content, devices] : expected) CHECK(others.contains(content.first));
    }
  }
  CHECK(compared > 100);
}

// Of layers that are alike as far as their prices look, some have readers that are not: those with
// the network's end in sight.
TEST_CASE("estimate: what is remembered of like layers changes nothing in a deep network") {
  const World world("gpt:layers=14,hidden=8,heads=2,seq_length=8,vocab_size=16",
                    "star:2,device=p100-sxm2,rate=10GB/s,latency=1us");
  const strategies::StrategyInput input = world.input(batch);
  const std::vector<DeviceId> devices = devices_of(world.cluster, DeviceKind::gpu);
  const Plan plan = strategies::plan_data(input);
  LayerPlan first, second;
  first.devices = {devices[0]};
  second.devices = {devices[1]};
  lowering::Estimator used(input.step());
  for (std::size_t l = 0; l < plan.layers.size(); ++l) {
    if (world.network.layers[l].kind.as<Input>() != nullptr) continue;
    // In any order, so that what came first of one layer came second of others.
    for (const LayerPlan& other :
         splitmix64(l) % 2 == 0 ? std::array{first, second} : std::array{second, first}) {
      Plan changed = plan;
      changed.layers[l] = other;
      changed.layers[l].sync = plan.layers[l].sync;
      CAPTURE(world.network.layers[l].name);
      CHECK(used.step_time(changed) == lowering::Estimator(input.step()).step_time(changed));
    }
  }
}

TEST_CASE("estimate: a limit changes no time below it, and is reached by all others") {
  const Cluster cluster = topologies::load_cluster(
      "star:5,device=p100-sxm2*3+v100-sxm2*2,rate=10GB/s,latency=1us", "test");
  const auto cost = sim::make_constant_efficiency(cluster);
  std::size_t given_up = 0;
  for (const Network& network : tiny_networks()) {
    strategies::StrategyInput input{network, cluster, *cost};
    input.batch = batch;
    lowering::PriceCache prices(input.step());
    strategies::StrategyInput sharing = input;
    sharing.prices = &prices;
    for (std::uint64_t seed = 1; seed <= (long_tests() ? 40U : 12U); ++seed) {
      Plan plan = random_plan(network, 4, batch, seed);
      if (seed % 3 == 1) plan = with_split_states(std::move(plan), seed);
      plan.schedule.blocking_sends = seed % 4 == 3;
      CAPTURE(network.name);
      CAPTURE(seed);
      for (const auto links : {lowering::LinkSharing::ignored, lowering::LinkSharing::queued}) {
        const Seconds whole = lowering::Estimator(input.step(), links).step_time(plan);
        lowering::Estimator known(sharing.step(), links);
        for (const double factor : {0.4, 0.8, 0.999999, 1.0, 1.000001, 2.0}) {
          const Seconds limit = whole * factor;
          lowering::Estimator fresh(input.step(), links);
          for (const Seconds step : {fresh.step_time(plan, limit), known.step_time(plan, limit)}) {
            if (whole < limit) CHECK(step == whole);
            if (whole >= limit) CHECK(step >= limit);
            CHECK(step <= whole * (1 + 1e-9));
            if (step < whole * (1 - 1e-12)) ++given_up;
          }
        }
        CHECK(known.step_time(plan) == whole);
      }
    }
  }
  CHECK(given_up > (long_tests() ? 500U : 150U));
}

TEST_CASE("estimate: a refused plan leaves no trace") {
  const Cluster cluster =
      topologies::load_cluster("star:5,device=p100-sxm2,rate=10GB/s,latency=1us", "test");
  const auto cost = sim::make_constant_efficiency(cluster);
  const Network network = tiny_network("tied");
  strategies::StrategyInput input{network, cluster, *cost};
  input.batch = batch;
  // The layers that share a parameter: one replicated over devices 0 and 1, the other on 1 only.
  std::vector<std::size_t> users;
  for (std::size_t l = 0; l < network.layers.size(); ++l) {
    for (std::size_t k = 0; k < l && users.empty(); ++k) {
      const auto& a = network.layers[k].parameters;
      const auto& b = network.layers[l].parameters;
      if (!a.empty() && !b.empty() && a[0] == b[0]) users = {k, l};
    }
  }
  REQUIRE(users.size() == 2);
  const Plan good = random_plan(network, 4, batch, 3);
  Plan refused = single_device_plan(network, batch);
  refused.schedule.rank_lists[0].devices = {DeviceId{0}, DeviceId{1}};
  refused.layers[users[0]].cuts = {{Dim::replica, {1, 1}}};
  refused.layers[users[0]].devices = {DeviceId{0}, DeviceId{1}};
  refused.layers[users[1]].devices = {DeviceId{1}};
  lowering::Estimator estimator(input.step());
  const Seconds before = estimator.step_time(good);
  const Seconds single = estimator.step_time(single_device_plan(network, batch));
  CHECK_THROWS_AS((void)estimator.step_time(refused), InputError);
  CHECK(estimator.step_time(single_device_plan(network, batch)) == single);
  CHECK_THROWS_AS((void)estimator.step_time(refused), InputError);
  CHECK(estimator.step_time(good) == before);
}

TEST_CASE("estimate: slots of a stage that has lost its last layer are refused") {
  // As when a local search moves the only layer of a pipeline's last stage to the stage before.
  const Cluster cluster =
      topologies::load_cluster("star:4,device=p100-sxm2,rate=10GB/s,latency=1us", "test");
  const auto cost = sim::make_constant_efficiency(cluster);
  const Network network = tiny_network("residual");
  strategies::StrategyInput input{network, cluster, *cost};
  input.batch = batch;
  input.pipeline_parallel = 4;
  Plan plan = strategies::plan_pipeline(input);
  lowering::Estimator estimator(input.step());
  const Seconds before = estimator.step_time(plan);
  const Plan whole = plan;
  std::vector<std::int32_t>& stages = plan.schedule.stage_of_layer;
  const std::int32_t last = *std::max_element(stages.begin(), stages.end());
  REQUIRE(last > 0);
  for (std::size_t l = 0; l < stages.size(); ++l) {
    if (stages[l] != last) continue;
    plan.layers[l] = plan.layers[l - 1];
    stages[l] = last - 1;
  }
  CHECK_THROWS_WITH_AS((void)estimator.step_time(plan),
                       "plan: schedule: a slot of stage 3; 0 to 2: the last stage with a layer",
                       InputError);
  CHECK(estimator.step_time(whole) == before);
}

TEST_CASE("estimate: near the simulator where links are shared") {
  const Cluster cluster =
      topologies::load_cluster("nodes:2x4,device=v100-sxm2,intra=100GB/s,inter=12GB/s", "test");
  const auto cost = sim::make_constant_efficiency(cluster);
  const Network network = networks::load_network("alexnet", {}, "test");
  strategies::StrategyInput input{network, cluster, *cost};
  input.batch = 256;
  const auto simulator = sim::make_simgrid_executor(cluster, *cost, {});
  lowering::Estimator estimator(input.step());
  std::vector<Plan> plans;
  for (const strategies::Strategy& strategy : strategies::all()) {
    input.known = plans;
    plans.push_back(strategy.plan(input));
    const Plan& plan = plans.back();
    const double simulated =
        makespan(simulator->run(lowering::lower(network, cluster, plan))).count();
    CAPTURE(strategy.name);
    CHECK(std::abs(estimator.step_time(plan).count() / simulated - 1) < 0.01);
  }
}

TEST_CASE(
    "estimate: near the simulator where the last sends of a pipeline meet sums of gradients") {
  // Eight GPUs of a machine share its network card. Four stages of a machine each, or two of two
  // with replicas on both, so that sums cross the same cards as activations and their gradients.
  const Cluster cluster = topologies::load_cluster(
      "nodes:4x8,device=a100-sxm4-40,intra=300GB/s,inter=12.5GB/s", "test");
  const auto cost = sim::make_constant_efficiency(cluster);
  const Network network =
      networks::load_network("gpt:layers=8,hidden=4096,heads=32,seq_length=1024", {}, "test");
  const auto simulator = sim::make_simulator(cluster, *cost, {.engine = sim::Engine::fast});
  for (const auto& [tensor, stages] : {std::pair{8, 4}, {4, 4}, {2, 4}, {8, 2}, {4, 2}, {4, 1}}) {
    for (const int zero : {0, 1}) {
      strategies::StrategyInput input{network, cluster, *cost};
      input.batch = 64;
      input.precision = Precision::bf16;
      input.tensor_parallel = tensor;
      input.pipeline_parallel = stages;
      input.micro_batches = 8;
      input.zero_stage = zero;
      const Plan plan = strategies::plan_tensor(input);
      const double simulated =
          makespan(simulator->run(lowering::lower(network, cluster, plan))).count();
      CAPTURE(tensor);
      CAPTURE(stages);
      CAPTURE(zero);
      const double error =
          lowering::Estimator(input.step()).step_time(plan).count() / simulated - 1;
      CHECK(std::abs(error) < 0.03);
    }
  }
}

TEST_CASE("estimate: two all-reduces share an uplink, by hand and as the simulator has them") {
  // Two machines of two devices, layers split over the devices of a machine, replicas on the other:
  // the devices of equal rank sum the gradients of half of the parameters each, both rings over the
  // same uplinks. A ring of two sends 2(n-1)/n = 1 times its payload in each direction.
  const Cluster cluster = topologies::load_cluster(
      "nodes:2x2,device=v100-sxm2,intra=100GB/s,inter=1GB/s,latency=1us", "test");
  const auto cost = sim::make_constant_efficiency(cluster);
  const Network network = network_of("x: vector 1000; dense 2000; dense 1000; loss");
  strategies::StrategyInput input{network, cluster, *cost};
  input.batch = batch;
  input.tensor_parallel = 2;
  input.pipeline_parallel = 1;
  input.micro_batches = 1;
  const Plan plan = strategies::plan_tensor(input);
  const double weights = 2 * 1000 * 2000 * 4;
  const double step = lowering::Estimator(input.step()).step_time(plan).count();
  CHECK(step >= weights / 1e9);
  CHECK(step <= 1.1 * weights / 1e9);
  const double alone =
      lowering::Estimator(input.step(), lowering::LinkSharing::ignored).step_time(plan).count();
  CHECK(alone <= 0.6 * step);
  const auto simulator = sim::make_simulator(cluster, *cost, {.engine = sim::Engine::fast});
  const double simulated =
      makespan(simulator->run(lowering::lower(network, cluster, plan))).count();
  CHECK(std::abs(step / simulated - 1) < 0.01);
}

}  // namespace
}  // namespace parsim::testing
