// The order of a hypergraph plan's stages, by hand.
#include <doctest/doctest.h>

#include <vector>

#include "strategies/hypergraph/search.hpp"
#include "tests/support/world.hpp"

namespace parsim::strategies::hypergraph {
namespace {

TEST_CASE("hypergraph order: an input belongs to the stage of the layer that reads it") {
  Network network;
  network.name = "two inputs";
  const Shape eight{{{Dim::channel, 8}}};
  const LayerId left = add_input(network, "left", eight),
                right = add_input(network, "right", eight);
  const LayerId first = add_layer(network, "first", Dense{8}, {left});
  const LayerId sum = add_layer(network, "sum", Combine{"add"}, {first, right});
  const LayerId last = add_layer(network, "last", Dense{8}, {sum});
  add_layer(network, "loss", Loss{}, {last});
  const testing::World world(network, topologies::load_cluster("star:2,device=t4", "test"));
  std::vector<LayerPlan> layers(network.layers.size(), LayerPlan{{}, {DeviceId{1}}, {}, false, {}});
  for (const LayerId layer : {left, first}) layers[layer.index()].devices = {DeviceId{0}};
  const Schedule schedule = pipelined(world.input(8), layers, 2);
  CHECK(schedule.stage_of_layer == std::vector<std::int32_t>{0, 1, 0, 1, 1, 1});
  REQUIRE(schedule.rank_lists.size() == 2);
  for (std::int32_t device = 0; device < 2; ++device) {
    CAPTURE(device);
    const RankList& list = schedule.rank_lists[static_cast<std::size_t>(device)];
    CHECK(list.devices == std::vector{DeviceId{device}});
    CHECK(list.slots.size() == 4);  // both directions of two micro-batches
    for (const Slot& slot : list.slots) CHECK(slot.stage == device);
  }
}

}  // namespace
}  // namespace parsim::strategies::hypergraph
