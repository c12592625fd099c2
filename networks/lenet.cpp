// Small networks: LeNet-5 in the form that frameworks' examples use, and a perceptron.
#include "networks/build.hpp"
#include "networks/zoo.hpp"

namespace parsim::networks::zoo {

// LeCun et al. 1998, with rectifiers and max pooling instead of squashing and trainable
// subsampling, and conv2 connected to every map. Parameters: 156 + 2,416 + 48,120 + 10,164 + 850.
Network lenet5() {
  Network net = start("lenet5", image_shape(1, 32, 32));
  LayerId x{0};
  x = conv_relu(net, "conv1", x, {.filters = 6, .windows = square(5)});
  x = max_pool(net, "pool1", x, square(2, 2));
  x = conv_relu(net, "conv2", x, {.filters = 16, .windows = square(5)});
  x = max_pool(net, "pool2", x, square(2, 2));
  x = add_layer(net, "flatten", Flatten{}, {x});
  x = dense_relu(net, "fc1", x, 120);
  x = dense_relu(net, "fc2", x, 84);
  finish(net, x, 10, "fc3");
  return net;
}

// Ours: dense layers alone, for checks by hand. 784·1024 + 1024 + 1024·1024 + 1024 + 10,250
// parameters.
Network mlp() {
  Network net = start("mlp", vector_shape(784));
  LayerId x{0};
  x = dense_relu(net, "fc1", x, 1024);
  x = dense_relu(net, "fc2", x, 1024);
  finish(net, x, 10, "fc3");
  return net;
}

}  // namespace parsim::networks::zoo
