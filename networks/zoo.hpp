// The families of built-in networks; networks.cpp gives their members names. Private to networks/.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "core/network.hpp"

namespace parsim::networks {
struct NetworkDefaults;
struct NetworkEntry;
}  // namespace parsim::networks

namespace parsim::networks::zoo {

/// LeNet-5, a multilayer perceptron: lenet.cpp.
[[nodiscard]] Network lenet5();
[[nodiscard]] Network mlp();

/// AlexNet in its three shapes and what followed it first: alexnet.cpp.
[[nodiscard]] Network alexnet();
[[nodiscard]] Network alexnet_one_tower();
[[nodiscard]] Network alexnet_grouped();
[[nodiscard]] Network overfeat();

/// VGG with the numbers of 3x3 convolutions in its five stages: vgg.cpp.
[[nodiscard]] Network vgg(std::string name, const std::array<int, 5>& convolutions);

/// Residual networks over images: resnet.cpp.
struct ResNet {
  std::string name;
  std::array<int, 4> blocks{};        ///< residual blocks in the four stages
  bool bottleneck = true;             ///< 1x1, 3x3, 1x1 instead of two 3x3
  std::int64_t groups = 1;            ///< of the 3x3 in a bottleneck
  std::int64_t width_per_group = 64;  ///< at the first stage; doubles with each
  bool stride_in_first = false;       ///< v1: a bottleneck's first 1x1 strides, not its 3x3 (v1.5)
  bool squeeze_excite = false;
};
[[nodiscard]] Network resnet(const ResNet& design);

/// Two 3x3(x3) convolutions and a shortcut, over images or volumes: resnet.cpp. `name` is the
/// block's, "layer1.0".
LayerId basic_block(Network& network, const std::string& name, LayerId from, std::int64_t filters,
                    std::int64_t stride);

/// Residual networks over volumes: resnet3d.cpp.
[[nodiscard]] Network r3d_18();
[[nodiscard]] Network resattnet3d(std::string name, const std::array<int, 4>& blocks);

[[nodiscard]] Network googlenet();
[[nodiscard]] Network inception_v3();
[[nodiscard]] Network densenet121();

/// mobilenet.cpp.
[[nodiscard]] Network mobilenet_v1();
[[nodiscard]] Network mobilenet_v2();

/// The two CNNs of the heterogeneous-model-parallelism paper: hmp.cpp.
[[nodiscard]] Network hmp_mnist();
[[nodiscard]] Network hmp_cifar10();

/// Published language models, of samples as long as in their pretraining: language_models.cpp.
[[nodiscard]] std::vector<NetworkEntry> language_models();

/// A transformer from a call, "gpt:layers=24,hidden=1024,heads=16", and a line on its options:
/// gpt.cpp. Throws InputError at `where` for a wrong call.
[[nodiscard]] Network gpt(const std::string& call, const std::string& where,
                          const NetworkDefaults& defaults);
[[nodiscard]] std::string gpt_summary();

}  // namespace parsim::networks::zoo
