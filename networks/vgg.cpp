// VGG (Simonyan & Zisserman 2014), configurations A, D and E without normalisation, as in
// torchvision; the adaptive pooling to 7x7 is the identity at 224x224 and left out.
#include <fmt/format.h>

#include "networks/build.hpp"
#include "networks/zoo.hpp"

namespace parsim::networks::zoo {

Network vgg(std::string name, const std::array<int, 5>& convolutions) {
  constexpr std::array<std::int64_t, 5> filters{64, 128, 256, 512, 512};
  Network net = start(std::move(name), image_shape(3, 224, 224));
  LayerId x{0};
  for (std::size_t stage = 0; stage < filters.size(); ++stage) {
    for (int i = 1; i <= convolutions[stage]; ++i) {
      x = conv_relu(net, fmt::format("conv{}_{}", stage + 1, i), x,
                    {.filters = filters[stage], .windows = square(3, 1, 1)});
    }
    x = max_pool(net, fmt::format("pool{}", stage + 1), x, square(2, 2));
  }
  x = add_layer(net, "flatten", Flatten{}, {x});
  x = dense_relu(net, "fc6", x, 4096);
  x = add_layer(net, "dropout6", Dropout{.rate = 0.5}, {x});
  x = dense_relu(net, "fc7", x, 4096);
  x = add_layer(net, "dropout7", Dropout{.rate = 0.5}, {x});
  finish(net, x, 1000, "fc8");
  return net;
}

}  // namespace parsim::networks::zoo
