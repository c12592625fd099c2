#include "networks/build.hpp"

#include <utility>

namespace parsim::networks::zoo {

Window window(std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  return {.kernel = kernel, .stride = stride, .pad_begin = padding, .pad_end = padding};
}

std::vector<Window> square(std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  return {2, window(kernel, stride, padding)};
}

std::vector<Window> cube(std::int64_t kernel, std::int64_t stride, std::int64_t padding) {
  return {3, window(kernel, stride, padding)};
}

std::vector<Window> same_window(const Network& network, LayerId layer, std::int64_t kernel,
                                std::int64_t stride, std::int64_t padding) {
  const std::size_t spatial_axes = network[layer].out.axes.size() - 1;
  return {spatial_axes, window(kernel, stride, padding)};
}

std::int64_t channels(const Network& network, LayerId layer) {
  return network[layer].out.extent(Dim::channel);
}

Network start(std::string name, Shape input) {
  Network network{.name = std::move(name), .layers = {}, .parameters = {}, .warnings = {}};
  add_input(network, "input", std::move(input));
  return network;
}

LayerId relu(Network& network, std::string name, LayerId from) {
  return add_layer(network, std::move(name), Activation{}, {from});
}

LayerId conv_relu(Network& network, const std::string& name, LayerId from, Conv conv) {
  return relu(network, name + ".relu", add_layer(network, name, std::move(conv), {from}));
}

LayerId conv_norm_relu(Network& network, const std::string& name, LayerId from, Conv conv) {
  const LayerId normed = conv_norm(network, name + ".conv", name + ".bn", from, std::move(conv));
  return relu(network, name + ".relu", normed);
}

LayerId conv_norm(Network& network, std::string name, std::string norm_name, LayerId from,
                  Conv conv) {
  conv.bias = false;
  const LayerId convolved = add_layer(network, std::move(name), std::move(conv), {from});
  return add_layer(network, std::move(norm_name), Norm{}, {convolved});
}

LayerId dense_relu(Network& network, const std::string& name, LayerId from, std::int64_t units) {
  return relu(network, name + ".relu", add_layer(network, name, Dense{.units = units}, {from}));
}

LayerId max_pool(Network& network, std::string name, LayerId from, std::vector<Window> windows,
                 bool ceil_mode) {
  return add_layer(
      network, std::move(name),
      Pool{.kind = PoolKind::max, .windows = std::move(windows), .ceil_mode = ceil_mode}, {from});
}

LayerId global_average_pool(Network& network, std::string name, LayerId from) {
  Pool pool{.kind = PoolKind::average, .windows = {}};
  const std::vector<Axis>& axes = network[from].out.axes;
  for (std::size_t i = 1; i < axes.size(); ++i) pool.windows.push_back(window(axes[i].extent));
  return add_layer(network, std::move(name), std::move(pool), {from});
}

void pool_and_classify(Network& network, LayerId from, std::int64_t classes, double dropout) {
  LayerId x = global_average_pool(network, "avgpool", from);
  x = add_layer(network, "flatten", Flatten{}, {x});
  if (dropout > 0) x = add_layer(network, "dropout", Dropout{.rate = dropout}, {x});
  finish(network, x, classes);
}

void finish(Network& network, LayerId from, std::int64_t classes, std::string name) {
  const LayerId logits = add_layer(network, std::move(name), Dense{.units = classes}, {from});
  add_layer(network, "loss", Loss{}, {logits});
}

}  // namespace parsim::networks::zoo
