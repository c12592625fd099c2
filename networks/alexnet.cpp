// AlexNet in the three shapes that papers and frameworks use, and OverFeat, its first successor.
#include "networks/build.hpp"
#include "networks/zoo.hpp"

namespace parsim::networks::zoo {

namespace {

/// fc6, fc7, fc8 with a dropout before each of the first two, as in torchvision.
void classify(Network& net, LayerId x) {
  x = add_layer(net, "flatten", Flatten{}, {x});
  x = add_layer(net, "dropout6", Dropout{.rate = 0.5}, {x});
  x = dense_relu(net, "fc6", x, 4096);
  x = add_layer(net, "dropout7", Dropout{.rate = 0.5}, {x});
  x = dense_relu(net, "fc7", x, 4096);
  finish(net, x, 1000, "fc8");
}

/// Krizhevsky 2014 ("One weird trick for parallelizing convolutional neural networks", footnote 1):
/// one tower, no response normalisation. torchvision does not pad its pools.
Network one_tower(std::string name, std::int64_t pool_padding) {
  Network net = start(std::move(name), image_shape(3, 224, 224));
  LayerId x{0};
  x = conv_relu(net, "conv1", x, {.filters = 64, .windows = square(11, 4, 2)});
  x = max_pool(net, "pool1", x, square(3, 2, pool_padding));
  x = conv_relu(net, "conv2", x, {.filters = 192, .windows = square(5, 1, 2)});
  x = max_pool(net, "pool2", x, square(3, 2, pool_padding));
  x = conv_relu(net, "conv3", x, {.filters = 384, .windows = square(3, 1, 1)});
  x = conv_relu(net, "conv4", x, {.filters = 256, .windows = square(3, 1, 1)});
  x = conv_relu(net, "conv5", x, {.filters = 256, .windows = square(3, 1, 1)});
  x = max_pool(net, "pool5", x, square(3, 2, pool_padding));
  classify(net, x);
  return net;
}

}  // namespace

// torchvision's; its adaptive pooling to 6x6 is the identity at 224x224 and left out.
Network alexnet() { return one_tower("alexnet", 0); }

// A RECONSTRUCTION of the AlexNet of Jia et al. 2018 ("Exploring Hidden Dimensions in Parallelizing
// Convolutional Neural Networks"): the volumes of data parallelism in its Figure 8 need 74.7
// million parameters, which a last map of 7x7 gives and 6x6 does not. Pools padded by 1 make the
// maps after them 28, 14 and 7: 61,100,840 + (7·7 − 6·6)·256·4096 = 74,732,328 parameters.
Network alexnet_one_tower() { return one_tower("alexnet_one_tower", 1); }

// Krizhevsky et al. 2012, in Caffe's arrangement: two towers (groups of 2) in conv2, conv4 and
// conv5, local response normalisation over 5 channels before the first two pools. The published
// image of 224x224 does not fit the published maps; 227x227 does. 60,965,224 parameters:
// conv 34,944 + 307,456 + 885,120 + 663,936 + 442,624, dense 37,752,832 + 16,781,312 + 4,097,000.
Network alexnet_grouped() {
  Network net = start("alexnet_grouped", image_shape(3, 227, 227));
  const Norm response{.kind = NormKind::local_response, .affine = false, .size = 5};
  LayerId x{0};
  x = conv_relu(net, "conv1", x, {.filters = 96, .windows = square(11, 4)});
  x = add_layer(net, "norm1", response, {x});
  x = max_pool(net, "pool1", x, square(3, 2));
  x = conv_relu(net, "conv2", x, {.filters = 256, .windows = square(5, 1, 2), .groups = 2});
  x = add_layer(net, "norm2", response, {x});
  x = max_pool(net, "pool2", x, square(3, 2));
  x = conv_relu(net, "conv3", x, {.filters = 384, .windows = square(3, 1, 1)});
  x = conv_relu(net, "conv4", x, {.filters = 384, .windows = square(3, 1, 1), .groups = 2});
  x = conv_relu(net, "conv5", x, {.filters = 256, .windows = square(3, 1, 1), .groups = 2});
  x = max_pool(net, "pool5", x, square(3, 2));
  classify(net, x);
  return net;
}

// The fast model of Sermanet et al. 2013 as soumith/convnet-benchmarks times it
// (torch7/imagenet_winners/overfeat.lua): 231x231 images, fc6 of 3072 units, no dropout.
// 145,920,872 parameters: conv 34,944 + 614,656 + 1,180,160 + 4,719,616 + 9,438,208, dense
// 113,249,280 + 12,587,008 + 4,097,000.
Network overfeat() {
  Network net = start("overfeat", image_shape(3, 231, 231));
  LayerId x{0};
  x = conv_relu(net, "conv1", x, {.filters = 96, .windows = square(11, 4)});
  x = max_pool(net, "pool1", x, square(2, 2));
  x = conv_relu(net, "conv2", x, {.filters = 256, .windows = square(5)});
  x = max_pool(net, "pool2", x, square(2, 2));
  x = conv_relu(net, "conv3", x, {.filters = 512, .windows = square(3, 1, 1)});
  x = conv_relu(net, "conv4", x, {.filters = 1024, .windows = square(3, 1, 1)});
  x = conv_relu(net, "conv5", x, {.filters = 1024, .windows = square(3, 1, 1)});
  x = max_pool(net, "pool5", x, square(2, 2));
  x = add_layer(net, "flatten", Flatten{}, {x});
  x = dense_relu(net, "fc6", x, 3072);
  x = dense_relu(net, "fc7", x, 4096);
  finish(net, x, 1000, "fc8");
  return net;
}

}  // namespace parsim::networks::zoo
