// DenseNet-121 (Huang et al. 2017), as in torchvision: every layer of a block reads the
// concatenation of all maps made before it in the block.
#include <fmt/format.h>

#include "networks/build.hpp"
#include "networks/zoo.hpp"

namespace parsim::networks::zoo {

namespace {

constexpr std::int64_t growth = 32, bottleneck_factor = 4;

LayerId norm_relu(Network& net, const std::string& name, const std::string& number, LayerId from) {
  const LayerId normed = add_layer(net, name + ".norm" + number, Norm{}, {from});
  return relu(net, name + ".relu" + number, normed);
}

LayerId concat_maps(Network& net, const std::string& name, const std::vector<LayerId>& maps) {
  return maps.size() == 1 ? maps[0] : add_layer(net, name + ".concat", Concat{.axis = 0}, maps);
}

/// Normalise, rectify, 1x1 to four times the growth, the same again with 3x3 to the growth.
LayerId dense_layer(Network& net, const std::string& name, const std::vector<LayerId>& maps) {
  LayerId x = norm_relu(net, name, "1", concat_maps(net, name, maps));
  const Conv narrow{
      .filters = bottleneck_factor * growth, .windows = square(1), .groups = 1, .bias = false};
  x = add_layer(net, name + ".conv1", narrow, {x});
  x = norm_relu(net, name, "2", x);
  const Conv grow{.filters = growth, .windows = square(3, 1, 1), .groups = 1, .bias = false};
  return add_layer(net, name + ".conv2", grow, {x});
}

/// Between blocks: half the channels, half the extents.
LayerId transition(Network& net, const std::string& name, LayerId from) {
  LayerId x = norm_relu(net, name, "", from);
  const Conv halve{
      .filters = channels(net, x) / 2, .windows = square(1), .groups = 1, .bias = false};
  x = add_layer(net, name + ".conv", halve, {x});
  return add_layer(net, name + ".pool", Pool{.kind = PoolKind::average, .windows = square(2, 2)},
                   {x});
}

}  // namespace

Network densenet121() {
  constexpr std::array<int, 4> layers{6, 12, 24, 16};
  Network net = start("densenet121", image_shape(3, 224, 224));
  LayerId x = conv_norm(net, "conv0", "norm0", LayerId{0},
                        {.filters = 2 * growth, .windows = square(7, 2, 3)});
  x = max_pool(net, "pool0", relu(net, "relu0", x), square(3, 2, 1));
  for (std::size_t block = 0; block < layers.size(); ++block) {
    const std::string name = fmt::format("denseblock{}", block + 1);
    std::vector<LayerId> maps{x};
    for (int i = 1; i <= layers[block]; ++i) {
      maps.push_back(dense_layer(net, fmt::format("{}.denselayer{}", name, i), maps));
    }
    x = concat_maps(net, name, maps);
    if (block + 1 < layers.size()) x = transition(net, fmt::format("transition{}", block + 1), x);
  }
  pool_and_classify(net, norm_relu(net, "final", "5", x), 1000);
  return net;
}

}  // namespace parsim::networks::zoo
