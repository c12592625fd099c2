// Residual networks over volumes: torchvision's R3D-18 for video, and 3D-ResAttNet for brain scans.
#include <fmt/format.h>

#include "networks/build.hpp"
#include "networks/zoo.hpp"

namespace parsim::networks::zoo {

namespace {

/// Blocks `name`.0, `name`.1, ...; the first strides.
LayerId stage(Network& net, const std::string& name, LayerId from, std::int64_t filters, int blocks,
              std::int64_t stride) {
  for (int i = 0; i < blocks; ++i) {
    from = basic_block(net, fmt::format("{}.{}", name, i), from, filters, i == 0 ? stride : 1);
  }
  return from;
}

/// Self-attention over all voxels (Wang et al. 2018, "Non-local neural networks"; the learned
/// weight of the residual as in Zhang et al. 2019, "Self-attention GANs"):
///
///     out = from + gamma · softmax(Q Kᵀ) V,     Q, K: voxel × channel/8,  V: voxel × channel
LayerId self_attention(Network& net, const std::string& name, LayerId from) {
  constexpr std::int64_t reduction = 8;  // Zhang et al. 2019, section 3
  const Shape map = net[from].out;
  const std::int64_t width = channels(net, from), voxels = map.elements() / width;
  // One row per channel, one column per voxel; no data moves.
  const auto project = [&](const std::string& what, std::int64_t filters) {
    const LayerId x =
        add_layer(net, name + "." + what, Conv{.filters = filters, .windows = cube(1)}, {from});
    const Rearrange flat{.what = "reshape",
                         .out = {{{Dim::channel, filters}, {Dim::other, voxels}}},
                         .moves_data = false};
    return add_layer(net, name + "." + what + ".flat", flat, {x});
  };
  const auto transposed = [&](LayerId x) {
    const Rearrange by_voxel{.what = "transpose",
                             .out = {{{Dim::token, voxels}, {Dim::channel, channels(net, x)}}}};
    return add_layer(net, net[x].name + ".transpose", by_voxel, {x});
  };
  const LayerId query = transposed(project("query", width / reduction));
  const LayerId key = project("key", width / reduction);
  const LayerId value = transposed(project("value", width));
  const LayerId scores = add_layer(net, name + ".scores", MatMul{}, {query, key});
  const LayerId weights = add_layer(net, name + ".softmax", Softmax{.axis = 1}, {scores});
  const LayerId mixed = add_layer(net, name + ".mix", MatMul{}, {weights, value});
  const Rearrange by_channel{.what = "transpose",
                             .out = {{{Dim::channel, width}, {Dim::other, voxels}}}};
  const LayerId rows = add_layer(net, name + ".mix.transpose", by_channel, {mixed});
  const LayerId back =
      add_layer(net, name + ".mix.unflat",
                Rearrange{.what = "reshape", .out = map, .moves_data = false}, {rows});
  const LayerId gamma = add_layer(net, name + ".gamma", Learned{.out = {{{Dim::other, 1}}}}, {});
  const LayerId scaled = add_layer(net, name + ".scale", Combine{.function = "mul"}, {back, gamma});
  return add_layer(net, name + ".add", Combine{.function = "add"}, {from, scaled});
}

}  // namespace

// Tran et al. 2018; 16 frames of 112x112, 400 classes.
Network r3d_18() {
  Network net = start("r3d_18", volume_shape(3, 16, 112, 112));
  LayerId x =
      conv_norm(net, "stem.0", "stem.1", LayerId{0},
                {.filters = 64, .windows = {window(3, 1, 1), window(7, 2, 3), window(7, 2, 3)}});
  x = relu(net, "stem.2", x);
  x = stage(net, "layer1", x, 64, 2, 1);
  x = stage(net, "layer2", x, 128, 2, 2);
  x = stage(net, "layer3", x, 256, 2, 2);
  x = stage(net, "layer4", x, 512, 2, 2);
  pool_and_classify(net, x, 400);
  return net;
}

// 3D-ResAttNet (Zhang, Han, Zhu, Sun, Zhang 2021, "An Explainable 3D Residual Self-Attention Deep
// Neural Network for Joint Atrophy Localization and Alzheimer's Disease Diagnosis using Structural
// MRI"), the case study of the GABRA paper (Akintoye et al. 2021/2022).
//
// Published and kept: 3-D convolutions, residual blocks, self-attention with a residual of its own,
// two classes from one scan, depths 18 and 34.
// A RECONSTRUCTION, for want of published code: the stages are those of ResNet-18 and -34 with 3-D
// kernels; the stem is their 7x7x7 and pooling; the scan has 96x112x96 voxels (guessed); attention
// closes stages 2, 3 and 4 (after stage 1 its voxel × voxel map would hold 16,128² numbers, 1 GB a
// scan).
Network resattnet3d(std::string name, const std::array<int, 4>& blocks) {
  Network net = start(std::move(name), volume_shape(1, 96, 112, 96));
  LayerId x = conv_norm(net, "conv1", "bn1", LayerId{0}, {.filters = 64, .windows = cube(7, 2, 3)});
  x = max_pool(net, "maxpool", relu(net, "relu", x), cube(3, 2, 1));
  x = stage(net, "layer1", x, 64, blocks[0], 1);
  std::int64_t filters = 128;
  for (std::size_t i = 1; i < blocks.size(); ++i, filters *= 2) {
    x = stage(net, fmt::format("layer{}", i + 1), x, filters, blocks[i], 2);
    x = self_attention(net, fmt::format("attention{}", i + 1), x);
  }
  pool_and_classify(net, x, 2);
  return net;
}

}  // namespace parsim::networks::zoo
