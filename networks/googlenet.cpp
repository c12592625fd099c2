// GoogLeNet (Szegedy et al. 2014) without its auxiliary heads, as in torchvision: with batch
// normalisation, and with 3x3 where the paper has 5x5 convolutions.
#include "networks/build.hpp"
#include "networks/zoo.hpp"

namespace parsim::networks::zoo {

namespace {

struct Widths {
  std::int64_t branch1, reduce2, branch2, reduce3, branch3, branch4;
};

LayerId inception(Network& net, const std::string& name, LayerId from, const Widths& widths) {
  const LayerId one = conv_norm_relu(net, name + ".branch1", from,
                                     {.filters = widths.branch1, .windows = square(1)});
  LayerId two = conv_norm_relu(net, name + ".branch2.0", from,
                               {.filters = widths.reduce2, .windows = square(1)});
  two = conv_norm_relu(net, name + ".branch2.1", two,
                       {.filters = widths.branch2, .windows = square(3, 1, 1)});
  LayerId three = conv_norm_relu(net, name + ".branch3.0", from,
                                 {.filters = widths.reduce3, .windows = square(1)});
  three = conv_norm_relu(net, name + ".branch3.1", three,
                         {.filters = widths.branch3, .windows = square(3, 1, 1)});
  LayerId four = max_pool(net, name + ".branch4.0", from, square(3, 1, 1), true);
  four = conv_norm_relu(net, name + ".branch4.1", four,
                        {.filters = widths.branch4, .windows = square(1)});
  return add_layer(net, name + ".concat", Concat{.axis = 0}, {one, two, three, four});
}

}  // namespace

Network googlenet() {
  Network net = start("googlenet", image_shape(3, 224, 224));
  LayerId x = conv_norm_relu(net, "conv1", LayerId{0}, {.filters = 64, .windows = square(7, 2, 3)});
  x = max_pool(net, "maxpool1", x, square(3, 2), true);
  x = conv_norm_relu(net, "conv2", x, {.filters = 64, .windows = square(1)});
  x = conv_norm_relu(net, "conv3", x, {.filters = 192, .windows = square(3, 1, 1)});
  x = max_pool(net, "maxpool2", x, square(3, 2), true);
  x = inception(net, "inception3a", x, {64, 96, 128, 16, 32, 32});
  x = inception(net, "inception3b", x, {128, 128, 192, 32, 96, 64});
  x = max_pool(net, "maxpool3", x, square(3, 2), true);
  x = inception(net, "inception4a", x, {192, 96, 208, 16, 48, 64});
  x = inception(net, "inception4b", x, {160, 112, 224, 24, 64, 64});
  x = inception(net, "inception4c", x, {128, 128, 256, 24, 64, 64});
  x = inception(net, "inception4d", x, {112, 144, 288, 32, 64, 64});
  x = inception(net, "inception4e", x, {256, 160, 320, 32, 128, 128});
  x = max_pool(net, "maxpool4", x, square(2, 2), true);
  x = inception(net, "inception5a", x, {256, 160, 320, 32, 128, 128});
  x = inception(net, "inception5b", x, {384, 192, 384, 48, 128, 128});
  pool_and_classify(net, x, 1000, 0.2);
  return net;
}

}  // namespace parsim::networks::zoo
