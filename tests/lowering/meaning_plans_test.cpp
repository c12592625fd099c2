// The proof of meaning for plans that no strategy of the table makes.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>

#include "core/errors.hpp"
#include "core/json.hpp"
#include "lowering/lower.hpp"
#include "tests/support/meaning.hpp"
#include "tests/support/notation.hpp"
#include "tests/support/random_plans.hpp"
#include "tests/support/tiny_networks.hpp"

namespace parsim::testing {
namespace {

/// How one layer is split; layers without a choice stay whole on device 0.
struct Choice {
  std::string layer;
  std::vector<Cut> cuts;
  std::vector<std::int32_t> devices;
  Sync sync{};
};

Plan plan_of(const Network& network, std::int64_t batch, const std::vector<Choice>& choices) {
  Plan plan = single_device_plan(network, batch);
  std::set<DeviceId> used{DeviceId{0}};
  for (const Choice& choice : choices) {
    const auto layer =
        std::find_if(network.layers.begin(), network.layers.end(),
                     [&](const Layer& candidate) { return candidate.name == choice.layer; });
    REQUIRE(layer != network.layers.end());
    LayerPlan& chosen = plan.layers[static_cast<std::size_t>(layer - network.layers.begin())];
    chosen.cuts = choice.cuts;
    chosen.devices.clear();
    for (const std::int32_t device : choice.devices) chosen.devices.emplace_back(device);
    chosen.sync = choice.sync;
    used.insert(chosen.devices.begin(), chosen.devices.end());
  }
  plan.schedule.rank_lists[0].devices.assign(used.begin(), used.end());
  return plan;
}

std::string difference_on_star(const Network& network, const Plan& plan) {
  const Cluster cluster = star_of(6, "10 GB/s", "1us");
  return difference(plan, lowering::lower(network, cluster, plan), 7);
}

std::set<CollectiveKind> collectives_of(const ExecDag& dag) {
  std::set<CollectiveKind> kinds;
  for (std::size_t i = 0; i < dag.size(); ++i) {
    const Op op = dag.op(OpId{i});
    if (const auto* collective = std::get_if<Collective>(&op)) kinds.insert(collective->kind);
  }
  return kinds;
}

Cut cut(Dim dim, std::vector<std::int64_t> sizes) { return {dim, std::move(sizes)}; }

}  // namespace

TEST_CASE("meaning: uneven channel cuts, different from layer to layer") {
  const Network net = tiny_network("plain");
  const Plan plan = plan_of(net, 7,
                            {{"conv", {cut(Dim::channel, {1, 3, 2})}, {2, 0, 1}},
                             {"relu", {cut(Dim::channel, {4, 2})}, {0, 2}},
                             {"pool", {cut(Dim::channel, {1, 0, 5})}, {0, 1, 2}},
                             {"flatten", {cut(Dim::channel, {5, 12, 7})}, {1, 2, 0}},
                             {"hidden", {cut(Dim::channel, {6, 1})}, {1, 2}},
                             {"tanh", {cut(Dim::sample, {3, 4})}, {1, 2}},
                             {"scores", {cut(Dim::channel, {2, 3})}, {2, 1}}});
  CHECK(difference_on_star(net, plan) == "");
}

TEST_CASE("meaning: channel cuts gather what a dense layer reads and scatter its gradient") {
  const Network net = tiny_network("plain");
  const Plan plan = plan_of(net, 4,
                            {{"flatten", {cut(Dim::channel, {8, 12, 4})}, {0, 1, 2}},
                             {"hidden", {cut(Dim::channel, {2, 2, 3})}, {0, 1, 2}}});
  CHECK(difference_on_star(net, plan) == "");
  const ExecDag dag = lowering::lower(net, star_of(3, "10 GB/s", "1us"), plan);
  const std::set<CollectiveKind> kinds = collectives_of(dag);
  CHECK(kinds.contains(CollectiveKind::all_gather));
  CHECK(kinds.contains(CollectiveKind::reduce_scatter));
}

TEST_CASE("meaning: grids of height and width exchange halos, strided and dilated windows too") {
  const Network net = tiny_network("windows");
  const auto grid = [](std::vector<std::int64_t> height, std::vector<std::int64_t> width) {
    return std::vector{cut(Dim::height, std::move(height)), cut(Dim::width, std::move(width))};
  };
  const Plan plan = plan_of(net, 3,
                            {{"conv1", grid({2, 1}, {3, 4}), {0, 1, 2, 3}},
                             {"lrn", grid({1, 2}, {5, 2}), {3, 1, 2, 0}},
                             {"average", grid({1, 1}, {1, 3}), {0, 1, 2, 3}},
                             {"conv2", grid({1, 1}, {2, 2}), {0, 1, 2, 3}},
                             {"max", grid({2}, {1, 1, 1}), {0, 1, 2}}});
  CHECK(difference_on_star(net, plan) == "");
}

TEST_CASE("meaning: volumes are cut along depth, height and width") {
  const Network net = tiny_network("volume");
  const std::vector<Cut> cubes{cut(Dim::depth, {3, 1}), cut(Dim::height, {1, 2}),
                               cut(Dim::width, {2, 2})};
  const Plan plan = plan_of(net, 2,
                            {{"conv", cubes, {0, 1, 2, 3, 0, 1, 2, 3}},
                             {"relu", cubes, {3, 2, 1, 0, 3, 2, 1, 0}},
                             {"pool", {cut(Dim::depth, {1, 1})}, {2, 5}}});
  CHECK(difference_on_star(net, plan) == "");
}

TEST_CASE("meaning: partial sums over cut contractions, alone and within other cuts") {
  const Network net = tiny_network("residual");
  const Plan plan = plan_of(
      net, 4,
      {{"conv1", {cut(Dim::in_channel, {1, 3})}, {0, 1}},
       {"conv2", {cut(Dim::sample, {1, 3}), cut(Dim::in_channel, {2, 1, 1})}, {0, 1, 2, 3, 4, 5}},
       {"project", {cut(Dim::in_channel, {2, 2}), cut(Dim::channel, {5, 1})}, {0, 1, 2, 1}},
       {"scores", {cut(Dim::in_channel, {4, 2}), cut(Dim::replica, {1, 1})}, {3, 0, 1, 2}}});
  CHECK(difference_on_star(net, plan) == "");
}

TEST_CASE("meaning: a residual sum of a replicated and a cut operand") {
  const Network net = tiny_network("residual");
  const Plan plan = plan_of(net, 5,
                            {{"stem_relu", {cut(Dim::replica, {1, 1, 1})}, {0, 1, 2}},
                             {"conv1", {cut(Dim::channel, {3, 1})}, {1, 2}},
                             {"norm1", {cut(Dim::channel, {3, 1})}, {1, 2}},
                             {"add1", {cut(Dim::sample, {2, 3})}, {0, 3}},
                             {"relu1", {cut(Dim::replica, {1, 1})}, {0, 3}},
                             {"conv2", {cut(Dim::replica, {1, 1})}, {3, 0}},
                             {"norm2", {cut(Dim::channel, {2, 4})}, {3, 4}},
                             {"project", {cut(Dim::sample, {5, 0})}, {2, 3}},
                             {"add2", {cut(Dim::height, {1, 2})}, {4, 3}}});
  CHECK(difference_on_star(net, plan) == "");
}

TEST_CASE("meaning: several cells of a layer on one device") {
  const Network net = tiny_network("branches");
  const Plan plan = plan_of(net, 6,
                            {{"stem", {cut(Dim::sample, {1, 2, 3})}, {1, 0, 1}},
                             {"branch1", {cut(Dim::channel, {1, 1, 1})}, {2, 2, 0}},
                             {"branch2", {cut(Dim::height, {2, 1, 2})}, {1, 2, 1}},
                             {"branch3", {cut(Dim::width, {1, 3})}, {2, 2}},
                             {"concat", {cut(Dim::channel, {3, 3, 4})}, {0, 1, 0}},
                             {"classifier", {cut(Dim::sample, {3, 3})}, {1, 1}}});
  CHECK(difference_on_star(net, plan) == "");
}

TEST_CASE("meaning: tied weights are summed over the layers and devices that use them") {
  const Network net = tiny_network("tied");
  const Plan plan = plan_of(net, 4,
                            {{"first", {cut(Dim::channel, {2, 4})}, {0, 1}},
                             {"second", {cut(Dim::channel, {3, 3})}, {2, 1}},
                             {"scores", {cut(Dim::sample, {1, 3})}, {0, 2}}});
  CHECK(difference_on_star(net, plan) == "");
}

// A server has one store for the sum: gradients of a second replica, which are complete as well,
// must not be added to it.
TEST_CASE("meaning: a parameter server of a layer with replicas gets one replica's gradients") {
  const Network net = tiny_network("plain");
  const std::vector<Cut> cuts{cut(Dim::replica, {1, 1}), cut(Dim::sample, {2, 4})};
  for (const std::int32_t server : {0, 3, 5}) {
    CAPTURE(server);
    const Plan plan =
        plan_of(net, 6, {{"hidden", cuts, {0, 1, 2, 3}, {Sync::Kind::server, DeviceId{server}}}});
    CHECK(difference_on_star(net, plan) == "");
  }
}

// What was added up forward is still there: the first part on a device has to replace it.
TEST_CASE("meaning: parts of a contraction that are computed again are not added to the old ones") {
  const Network net = tiny_network("plain");
  for (const std::vector<std::int32_t>& devices :
       {std::vector<std::int32_t>{0, 1, 0}, {0, 0, 0}, {1, 0, 2}}) {
    Plan plan = plan_of(net, 6,
                        {{"hidden", {cut(Dim::in_channel, {9, 5, 10})}, devices},
                         {"conv", {cut(Dim::in_channel, {1, 2})}, {2, 1}}});
    for (LayerPlan& layer : plan.layers) layer.recompute = true;
    CHECK(difference_on_star(net, plan) == "");
  }
}

TEST_CASE("meaning: interleaved pipelines compute what the unsplit network computes") {
  const std::vector<Network> networks = tiny_networks();
  std::size_t stages = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const Network& network = networks[seed % networks.size()];
    const std::size_t gpus = 2 + seed / networks.size() % 4;
    const Cluster cluster = star_of(gpus + 1, "10 GB/s", "1us");
    Plan plan = random_interleaved_plan(network, gpus, 8, seed);
    if (seed % 3 == 0) plan = with_split_states(std::move(plan), seed);
    plan.schedule.blocking_sends = seed % 5 == 0;
    INFO(network.name, " on ", gpus, " devices, seed ", seed);
    CHECK_NOTHROW(validate(plan, network, cluster, "test"));
    CHECK(plan_from_json(to_json(plan), "test") == plan);
    CHECK(difference(plan, lowering::lower(network, cluster, plan), seed) == "");
    for (const std::int32_t stage : plan.schedule.stage_of_layer) {
      stages = std::max(stages, static_cast<std::size_t>(stage) + 1);
    }
  }
  CHECK(stages == 12);
}

TEST_CASE("meaning: any valid plan computes what the unsplit network computes") {
  const std::vector<Network> networks = tiny_networks();
  std::set<CollectiveKind> collectives;
  for (std::uint64_t seed = 0; seed < 160; ++seed) {
    const Network& network = networks[seed % networks.size()];
    const std::size_t gpus = 1 + seed / networks.size() % 5;
    const Cluster cluster = star_of(gpus + 1, "10 GB/s", "1us");
    const Plan plan = random_plan(network, gpus, 8, seed);
    const ExecDag dag = lowering::lower(network, cluster, plan);
    collectives.merge(collectives_of(dag));
    INFO(network.name, " on ", gpus, " devices, seed ", seed);
    CHECK(difference(plan, dag, seed) == "");
    const Plan split = with_split_states(plan, seed);
    CHECK(difference(split, lowering::lower(network, cluster, split), seed) == "");
  }
  CHECK(collectives == std::set{CollectiveKind::all_reduce, CollectiveKind::all_gather,
                                CollectiveKind::reduce_scatter, CollectiveKind::broadcast,
                                CollectiveKind::all_to_all});
}

}  // namespace parsim::testing
