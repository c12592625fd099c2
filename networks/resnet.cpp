// Residual networks over images (He et al. 2015) and what grew from them: ResNeXt (Xie et al.
// 2016), squeeze-and-excitation (Hu et al. 2017), wide ones (Zagoruyko & Komodakis 2016). Layers
// are named after torchvision's modules.
#include <fmt/format.h>

#include "networks/build.hpp"
#include "networks/zoo.hpp"

namespace parsim::networks::zoo {

namespace {

/// What is added to a block's result: its input, brought to the result's shape where they differ.
LayerId shortcut(Network& net, const std::string& name, LayerId from, std::int64_t filters,
                 std::int64_t stride) {
  if (stride == 1 && channels(net, from) == filters) return from;
  return conv_norm(net, name + ".downsample.0", name + ".downsample.1", from,
                   {.filters = filters, .windows = same_window(net, from, 1, stride)});
}

LayerId join(Network& net, const std::string& name, LayerId result, LayerId added) {
  const LayerId sum = add_layer(net, name + ".add", Combine{.function = "add"}, {result, added});
  return relu(net, name + ".relu", sum);
}

/// Scales every channel by a number between 0 and 1 that is computed from all channels' means.
LayerId squeeze_excite(Network& net, const std::string& name, LayerId from) {
  constexpr std::int64_t reduction = 16;  // Hu et al. 2017, section 4
  const std::int64_t width = channels(net, from);
  LayerId x = global_average_pool(net, name + ".avgpool", from);
  x = conv_relu(net, name + ".fc1", x, {.filters = width / reduction, .windows = square(1)});
  x = add_layer(net, name + ".fc2", Conv{.filters = width, .windows = square(1)}, {x});
  x = add_layer(net, name + ".sigmoid", Activation{.function = "sigmoid"}, {x});
  return add_layer(net, name + ".scale", Combine{.function = "mul"}, {from, x});
}

/// 1x1 down to `width`, 3x3 in groups, 1x1 up to four times the stage's `filters`.
LayerId bottleneck(Network& net, const ResNet& design, const std::string& name, LayerId from,
                   std::int64_t filters, std::int64_t stride) {
  constexpr std::int64_t expansion = 4;
  const std::int64_t width = filters * design.width_per_group / 64 * design.groups;
  const std::int64_t first = design.stride_in_first ? stride : 1;
  LayerId x = conv_norm(net, name + ".conv1", name + ".bn1", from,
                        {.filters = width, .windows = square(1, first)});
  x = relu(net, name + ".relu1", x);
  x = conv_norm(
      net, name + ".conv2", name + ".bn2", x,
      {.filters = width, .windows = square(3, stride / first, 1), .groups = design.groups});
  x = relu(net, name + ".relu2", x);
  x = conv_norm(net, name + ".conv3", name + ".bn3", x,
                {.filters = filters * expansion, .windows = square(1)});
  if (design.squeeze_excite) x = squeeze_excite(net, name + ".se", x);
  return join(net, name, x, shortcut(net, name, from, filters * expansion, stride));
}

}  // namespace

LayerId basic_block(Network& net, const std::string& name, LayerId from, std::int64_t filters,
                    std::int64_t stride) {
  LayerId x = conv_norm(net, name + ".conv1", name + ".bn1", from,
                        {.filters = filters, .windows = same_window(net, from, 3, stride, 1)});
  x = relu(net, name + ".relu1", x);
  x = conv_norm(net, name + ".conv2", name + ".bn2", x,
                {.filters = filters, .windows = same_window(net, x, 3, 1, 1)});
  return join(net, name, x, shortcut(net, name, from, filters, stride));
}

Network resnet(const ResNet& design) {
  Network net = start(design.name, image_shape(3, 224, 224));
  LayerId x =
      conv_norm(net, "conv1", "bn1", LayerId{0}, {.filters = 64, .windows = square(7, 2, 3)});
  x = max_pool(net, "maxpool", relu(net, "relu", x), square(3, 2, 1));
  std::int64_t filters = 64;
  for (std::size_t stage = 0; stage < design.blocks.size(); ++stage, filters *= 2) {
    for (int i = 0; i < design.blocks[stage]; ++i) {
      const std::string name = fmt::format("layer{}.{}", stage + 1, i);
      const std::int64_t stride = stage > 0 && i == 0 ? 2 : 1;
      x = design.bottleneck ? bottleneck(net, design, name, x, filters, stride)
                            : basic_block(net, name, x, filters, stride);
    }
  }
  pool_and_classify(net, x, 1000);
  return net;
}

}  // namespace parsim::networks::zoo
