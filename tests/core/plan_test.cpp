#include "core/plan.hpp"

#include <doctest/doctest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <numeric>

#include "core/errors.hpp"
#include "tests/support/notation.hpp"

using namespace parsim;
using parsim::testing::network_of;
using parsim::testing::star_of;

namespace {

std::vector<DeviceId> devices(std::vector<std::int32_t> numbers) {
  std::vector<DeviceId> ids;
  for (const std::int32_t number : numbers) ids.emplace_back(number);
  return ids;
}

LayerPlan split(Dim dim, std::vector<std::int64_t> sizes, std::vector<std::int32_t> on) {
  LayerPlan plan;
  plan.cuts = {{dim, std::move(sizes)}};
  plan.devices = devices(std::move(on));
  return plan;
}

/// Three layers on two devices, eight samples in one micro-batch, everything cut by sample.
struct World {
  Network network = network_of("x: vector 6; fc: dense 4; loss: loss");
  Cluster cluster = star_of(2, "25 GB/s", "1 us");
  Plan plan;

  World() {
    plan.batch = 8;
    plan.layers.assign(3, split(Dim::sample, {5, 3}, {0, 1}));
    plan.schedule.stage_of_layer = {0, 0, 0};
    plan.schedule.rank_lists = {
        {devices({0, 1}), {{0, 0, Direction::forward}, {0, 0, Direction::backward}}}};
  }
  /// The message of the InputError, or "valid".
  [[nodiscard]] std::string verdict() const {
    try {
      validate(plan, network, cluster, "p.json");
    } catch (const InputError& error) {
      return error.what();
    }
    return "valid";
  }
};

}  // namespace

TEST_CASE("plan: an even split gives the larger parts first") {
  CHECK(even_split(10, 4) == std::vector<std::int64_t>{3, 3, 2, 2});
  CHECK(even_split(2, 3) == std::vector<std::int64_t>{1, 1, 0});
  CHECK_THROWS_AS(static_cast<void>(even_split(3, 0)), BrokenInvariant);
}

TEST_CASE("plan: a proportional split gives remainders to the largest, ties to the first") {
  // Ideal 10/3 each: remainders are equal, the first gets the odd one.
  CHECK(proportional_split(10, {1, 1, 1}) == std::vector<std::int64_t>{4, 3, 3});
  // Ideal 4.5, 2.25, 2.25: 4, 2, 2 and the largest remainder takes the last.
  CHECK(proportional_split(9, {2, 1, 1}) == std::vector<std::int64_t>{5, 2, 2});
  CHECK(proportional_split(4, {0, 3, 1}) == std::vector<std::int64_t>{0, 3, 1});
}

TEST_CASE("plan: splits add up and stay within one of the ideal") {
  CHECK(rc::check([] {
    const std::int64_t extent = *rc::gen::inRange<std::int64_t>(0, 1000);
    const std::size_t parts = *rc::gen::inRange<std::size_t>(1, 9);
    std::vector<double> weights;
    for (std::size_t i = 0; i < parts; ++i) weights.push_back(*rc::gen::inRange(1, 50));
    const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
    const auto sum = [](const std::vector<std::int64_t>& sizes) {
      return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
    };
    const std::vector<std::int64_t> even = even_split(extent, parts);
    RC_ASSERT(sum(even) == extent);
    RC_ASSERT(even.front() - even.back() <= 1);
    const std::vector<std::int64_t> shares = proportional_split(extent, weights);
    RC_ASSERT(sum(shares) == extent);
    for (std::size_t i = 0; i < parts; ++i) {
      const double ideal = static_cast<double>(extent) * weights[i] / total;
      RC_ASSERT(std::abs(static_cast<double>(shares[i]) - ideal) <= 1.0);
    }
  }));
}

TEST_CASE("plan: cells are the grid's, row-major, the last cut fastest") {
  const Network network = network_of("x: image 3x4x4; conv 6 k3 p1");
  LayerPlan plan;
  plan.cuts = {{Dim::sample, {5, 3}}, {Dim::channel, {4, 2}}};
  plan.devices = devices({0, 1, 2, 0});
  CHECK(cells(network, LayerId{1}, plan, 8) ==
        std::vector<Cell>{{DeviceId{0}, {{{0, 5}, {0, 4}, {0, 4}, {0, 4}}, {}}, 0, 0},
                          {DeviceId{1}, {{{0, 5}, {4, 6}, {0, 4}, {0, 4}}, {}}, 0, 0},
                          {DeviceId{2}, {{{5, 8}, {0, 4}, {0, 4}, {0, 4}}, {}}, 0, 0},
                          {DeviceId{0}, {{{5, 8}, {4, 6}, {0, 4}, {0, 4}}, {}}, 0, 0}});
}

TEST_CASE("plan: joined neighbours along the last cut on one device are one cell") {
  const Network network = network_of("x: vector 6; dense 4");
  LayerPlan plan;
  plan.joined = true;
  plan.cuts = {{Dim::sample, {5, 3}}, {Dim::channel, {1, 1, 2}}};
  plan.devices = devices({0, 1, 1, 2, 2, 2});
  CHECK(cells(network, LayerId{1}, plan, 8) ==
        std::vector<Cell>{{DeviceId{0}, {{{0, 5}, {0, 1}}, {}}, 0, 0},
                          {DeviceId{1}, {{{0, 5}, {1, 4}}, {}}, 0, 0},
                          {DeviceId{2}, {{{5, 8}, {0, 4}}, {}}, 0, 0}});
  plan.cuts[1] = {Dim::replica, {1, 1, 1}};
  CHECK(cells(network, LayerId{1}, plan, 8) ==
        std::vector<Cell>{{DeviceId{0}, {{{0, 5}, {0, 4}}, {}}, 0, 0},
                          {DeviceId{1}, {{{0, 5}, {0, 4}}, {}}, 1, 0, 2},
                          {DeviceId{2}, {{{5, 8}, {0, 4}}, {}}, 0, 0, 3}});
  // Who has all of a contraction has no part of it to be summed.
  plan.cuts[1] = {Dim::in_channel, {2, 2, 2}};
  CHECK(cells(network, LayerId{1}, plan, 8) ==
        std::vector<Cell>{{DeviceId{0}, {{{0, 5}, {0, 4}}, {0, 2}}, 0, 0},
                          {DeviceId{1}, {{{0, 5}, {0, 4}}, {2, 6}}, 0, 1},
                          {DeviceId{2}, {{{5, 8}, {0, 4}}, {}}, 0, 0}});
}

TEST_CASE("plan: parts of size zero are no cells") {
  const Network network = network_of("x: vector 6; dense 4");
  const std::vector<Cell> all =
      cells(network, LayerId{1}, split(Dim::sample, {5, 0, 3}, {0, 1, 2}), 8);
  REQUIRE(all.size() == 2);
  CHECK(all[1].device == DeviceId{2});
  CHECK(all[1].part.out == Region{{5, 8}, {0, 4}});
}

TEST_CASE("plan: replicas compute all of it and parts of the contraction say which channels") {
  const Network network = network_of("x: vector 6; dense 4");
  const Region all{{0, 8}, {0, 4}};
  CHECK(cells(network, LayerId{1}, split(Dim::replica, {1, 1}, {0, 1}), 8) ==
        std::vector<Cell>{{DeviceId{0}, {all, {}}, 0, 0}, {DeviceId{1}, {all, {}}, 1, 0}});
  CHECK(cells(network, LayerId{1}, split(Dim::in_channel, {4, 2}, {0, 1}), 8) ==
        std::vector<Cell>{{DeviceId{0}, {all, {0, 4}}, 0, 0}, {DeviceId{1}, {all, {4, 6}}, 0, 1}});
}

TEST_CASE("plan: the cells of random cuts cover the output once") {
  CHECK(rc::check([] {
    const Network network = network_of("x: image 3x5x7; conv 6 k3 p1");
    LayerPlan plan;
    std::size_t grid = 1;
    for (const auto& [dim, extent] :
         {std::pair<Dim, std::int64_t>{Dim::sample, 9}, {Dim::channel, 6}, {Dim::height, 5}}) {
      const std::size_t parts = *rc::gen::inRange<std::size_t>(1, 8);
      plan.cuts.push_back({dim, even_split(extent, parts)});
      grid *= parts;
    }
    plan.devices = std::vector<DeviceId>(grid, DeviceId{0});
    const std::vector<Cell> all = cells(network, LayerId{1}, plan, 9);
    const Region output = whole(network[LayerId{1}].out, 9);
    std::int64_t volume = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      RC_ASSERT(output.contains(all[i].part.out));
      RC_ASSERT(!all[i].part.out.empty());
      volume += all[i].part.out.volume();
      for (std::size_t j = 0; j < i; ++j) {
        RC_ASSERT(intersect(all[i].part.out, all[j].part.out).empty());
      }
    }
    RC_ASSERT(volume == output.volume());
  }));
}

TEST_CASE("plan: a sound plan is valid") { CHECK(World{}.verdict() == "valid"); }

TEST_CASE("plan: a broken layer plan is refused with the layer's name") {
  World world;
  LayerPlan& fc = world.plan.layers[1];
  const LayerPlan sound = fc;
  const auto verdict_of = [&](const LayerPlan& changed) {
    fc = changed;
    const std::string verdict = world.verdict();
    fc = sound;
    return verdict;
  };
  CHECK(verdict_of(split(Dim::sample, {5, 4}, {0, 1})) ==
        "p.json: layer 'fc': sizes along sample add up to 9; they add up to 8");
  CHECK(verdict_of(split(Dim::height, {2, 2}, {0, 1})) ==
        "p.json: layer 'fc': cut along height; a dense layer may be cut along sample, channel, "
        "replica, in_channel");
  CHECK(verdict_of(split(Dim::in_channel, {3, 4}, {0, 1})) ==
        "p.json: layer 'fc': sizes along in_channel add up to 7; they add up to 6");
  CHECK(verdict_of(split(Dim::channel, {-1, 5}, {0, 1})) ==
        "p.json: layer 'fc': a part of size -1; sizes are zero or more");
  CHECK(verdict_of(split(Dim::channel, {}, {})) ==
        "p.json: layer 'fc': a cut along channel without parts; one size or more");
  CHECK(verdict_of(split(Dim::sample, {5, 3}, {0})) ==
        "p.json: layer 'fc': 1 devices for a grid of 2 cells; one device for each cell");
  CHECK(verdict_of(split(Dim::sample, {5, 3}, {0, 2})) == "p.json: layer 'fc': device 2; 0 to 1");
  CHECK(verdict_of(split(Dim::replica, {1, 1}, {1, 1})) ==
        "p.json: layer 'fc': device 1 in two replicas; replicas are on different "
        "devices");
  LayerPlan twice = sound;
  twice.cuts = {{Dim::sample, {8}}, {Dim::sample, {5, 3}}};
  CHECK(verdict_of(twice) == "p.json: layer 'fc': two cuts along sample; one cut for a dimension");
  LayerPlan served = sound;
  served.sync = {Sync::Kind::server, DeviceId{7}};
  CHECK(verdict_of(served) == "p.json: layer 'fc': parameter server 7; 0 to 1");
  CHECK(verdict_of(sound) == "valid");
}

TEST_CASE("plan: batch, layers, schedule and buckets are checked") {
  World world;
  world.plan.schedule.micro_batches = 3;
  CHECK(world.verdict() ==
        "p.json: batch 8 in 3 micro-batches; the batch is a positive multiple of the "
        "micro-batches");
  world = {};
  world.plan.layers.pop_back();
  CHECK(world.verdict() == "p.json: plans for 2 layers; network 'notation' has 3");
  world = {};
  world.plan.schedule.rank_lists[0].devices.pop_back();
  CHECK(world.verdict() ==
        "p.json: schedule: device 1 is in no rank list; every device that computes is in one rank "
        "list");
  world = {};
  world.plan.schedule.rank_lists[0].slots.pop_back();
  CHECK(world.verdict() ==
        "p.json: schedule: rank list 0 has 1 slots; each of its 2 (stage, micro-batch, direction) "
        "once");
  world = {};
  world.plan.schedule.rank_lists.push_back({devices({1}), {}});
  CHECK(world.verdict() ==
        "p.json: schedule: device 1 in rank list 1; each device is in one rank list at most, and "
        "exists");
  world = {};
  world.plan.buckets = {{ParameterId{0}}, {ParameterId{1}, ParameterId{0}}};
  CHECK(world.verdict() ==
        "p.json: buckets: parameter 0; each parameter exists and is in one bucket at most");
}
