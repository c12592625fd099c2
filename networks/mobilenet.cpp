// MobileNets: convolutions per channel ("depthwise") and 1x1 convolutions across channels.
#include <fmt/format.h>

#include "networks/build.hpp"
#include "networks/zoo.hpp"

namespace parsim::networks::zoo {

namespace {

/// Batch-normalised convolution with the rectifier that stops at 6: ONNX writes it as Clip.
LayerId conv_norm_relu6(Network& net, const std::string& name, LayerId from, Conv conv) {
  const LayerId x = conv_norm(net, name + ".conv", name + ".bn", from, std::move(conv));
  return add_layer(net, name + ".relu6", Activation{.function = "clip"}, {x});
}

Conv depthwise(const Network& net, LayerId from, std::int64_t stride) {
  const std::int64_t width = channels(net, from);
  return {.filters = width, .windows = square(3, stride, 1), .groups = width};
}

/// Expand by `factor`, convolve per channel, project; the input is added where shapes allow.
LayerId inverted_residual(Network& net, const std::string& name, LayerId from, std::int64_t factor,
                          std::int64_t filters, std::int64_t stride) {
  LayerId x = from;
  if (factor != 1) {
    x = conv_norm_relu6(net, name + ".expand", x,
                        {.filters = channels(net, from) * factor, .windows = square(1)});
  }
  x = conv_norm_relu6(net, name + ".depthwise", x, depthwise(net, x, stride));
  x = conv_norm(net, name + ".project.conv", name + ".project.bn", x,
                {.filters = filters, .windows = square(1)});
  if (stride != 1 || channels(net, from) != filters) return x;
  return add_layer(net, name + ".add", Combine{.function = "add"}, {from, x});
}

}  // namespace

// Howard et al. 2017, table 1, width 1, with batch normalisation after every convolution.
Network mobilenet_v1() {
  struct Block {
    std::int64_t filters, stride;
  };
  constexpr Block blocks[] = {{64, 1},  {128, 2}, {128, 1}, {256, 2}, {256, 1},  {512, 2}, {512, 1},
                              {512, 1}, {512, 1}, {512, 1}, {512, 1}, {1024, 2}, {1024, 1}};
  Network net = start("mobilenet_v1", image_shape(3, 224, 224));
  LayerId x = conv_norm_relu(net, "conv1", LayerId{0}, {.filters = 32, .windows = square(3, 2, 1)});
  int number = 1;
  for (const auto& [filters, stride] : blocks) {
    const std::string name = fmt::format("conv{}", ++number);
    x = conv_norm_relu(net, name + ".depthwise", x, depthwise(net, x, stride));
    x = conv_norm_relu(net, name + ".pointwise", x, {.filters = filters, .windows = square(1)});
  }
  pool_and_classify(net, x, 1000);
  return net;
}

// Sandler et al. 2018, table 2, as in torchvision.
Network mobilenet_v2() {
  struct Stage {
    std::int64_t factor, filters;
    int blocks;
    std::int64_t stride;
  };
  constexpr Stage stages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                              {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  Network net = start("mobilenet_v2", image_shape(3, 224, 224));
  LayerId x =
      conv_norm_relu6(net, "features.0", LayerId{0}, {.filters = 32, .windows = square(3, 2, 1)});
  int number = 0;
  for (const Stage& stage : stages) {
    for (int i = 0; i < stage.blocks; ++i) {
      x = inverted_residual(net, fmt::format("features.{}", ++number), x, stage.factor,
                            stage.filters, i == 0 ? stage.stride : 1);
    }
  }
  x = conv_norm_relu6(net, fmt::format("features.{}", ++number), x,
                      {.filters = 1280, .windows = square(1)});
  pool_and_classify(net, x, 1000, 0.2);
  return net;
}

}  // namespace parsim::networks::zoo
