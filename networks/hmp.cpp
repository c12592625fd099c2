// The two CNNs of Moreno-Alvarez, Haut, Paoletti, Rico-Gallego 2021 ("Heterogeneous model
// parallelism for deep neural networks", Neurocomputing 441), after the authors' published program.
// Convolutions keep the map's extent. Assumed: they have no bias, as Mesh-TensorFlow's conv2d adds
// none; dense layers have one.
#include <fmt/format.h>

#include "networks/build.hpp"
#include "networks/zoo.hpp"

namespace parsim::networks::zoo {

namespace {

/// An odd kernel, padded so that the map keeps its extent, then a rectifier.
LayerId same_conv_relu(Network& net, const std::string& name, LayerId from, std::int64_t filters,
                       std::int64_t kernel) {
  return conv_relu(net, name, from,
                   {.filters = filters, .windows = square(kernel, 1, kernel / 2), .bias = false});
}

}  // namespace

Network hmp_mnist() {
  Network net = start("hmp_mnist", image_shape(1, 28, 28));
  LayerId x{0};
  x = same_conv_relu(net, "conv1", x, 60, 7);
  x = same_conv_relu(net, "conv2", x, 120, 5);
  x = same_conv_relu(net, "conv3", x, 240, 3);
  x = add_layer(net, "pool3", Pool{.kind = PoolKind::average, .windows = square(2, 2)}, {x});
  x = add_layer(net, "flatten", Flatten{}, {x});
  x = dense_relu(net, "fc1", x, 128);
  finish(net, x, 10, "fc2");
  return net;
}

Network hmp_cifar10() {
  Network net = start("hmp_cifar10", image_shape(3, 32, 32));
  LayerId x{0};
  int convolution = 0;
  for (const std::int64_t filters : {60, 120, 240, 480}) {
    x = same_conv_relu(net, fmt::format("conv{}", ++convolution), x, filters, 3);
    x = same_conv_relu(net, fmt::format("conv{}", ++convolution), x, filters, 3);
    x = max_pool(net, fmt::format("pool{}", convolution), x, square(2, 2));
  }
  x = add_layer(net, "flatten", Flatten{}, {x});
  x = dense_relu(net, "fc1", x, 256);
  finish(net, x, 10, "fc2");
  return net;
}

}  // namespace parsim::networks::zoo
