// Helpers for writing networks: windows, the usual runs of two or three layers, the last layers.
// Private to networks/.
#pragma once

#include <string>
#include <vector>

#include "core/network.hpp"

namespace parsim::networks::zoo {

/// A window of `kernel`, padded alike at both ends.
[[nodiscard]] Window window(std::int64_t kernel, std::int64_t stride = 1, std::int64_t padding = 0);
/// The same window along two axes (images) or three (volumes).
[[nodiscard]] std::vector<Window> square(std::int64_t kernel, std::int64_t stride = 1,
                                         std::int64_t padding = 0);
[[nodiscard]] std::vector<Window> cube(std::int64_t kernel, std::int64_t stride = 1,
                                       std::int64_t padding = 0);
/// The same window along every spatial axis of `layer`'s output.
[[nodiscard]] std::vector<Window> same_window(const Network& network, LayerId layer,
                                              std::int64_t kernel, std::int64_t stride = 1,
                                              std::int64_t padding = 0);
/// Channels of `layer`'s output.
[[nodiscard]] std::int64_t channels(const Network& network, LayerId layer);

/// A network of that name with nothing but its input, which is layer 0 and called "input".
[[nodiscard]] Network start(std::string name, Shape input);

/// An element-wise rectifier.
LayerId relu(Network& network, std::string name, LayerId from);
/// `conv` called "<name>" and a rectifier called "<name>.relu".
LayerId conv_relu(Network& network, const std::string& name, LayerId from, Conv conv);
/// "<name>.conv", "<name>.bn" and "<name>.relu": a convolution whose bias batch normalisation
/// makes superfluous, so it has none.
LayerId conv_norm_relu(Network& network, const std::string& name, LayerId from, Conv conv);
/// `conv` called `name` without a bias, then batch normalisation called `norm_name`.
LayerId conv_norm(Network& network, std::string name, std::string norm_name, LayerId from,
                  Conv conv);
/// A dense layer called "<name>" and a rectifier called "<name>.relu".
LayerId dense_relu(Network& network, const std::string& name, LayerId from, std::int64_t units);

LayerId max_pool(Network& network, std::string name, LayerId from, std::vector<Window> windows,
                 bool ceil_mode = false);
/// Global average pooling; the axes stay, with extent 1.
LayerId global_average_pool(Network& network, std::string name, LayerId from);

/// The usual end after the last feature map: "avgpool", "flatten", "dropout" if its rate is not 0,
/// then finish().
void pool_and_classify(Network& network, LayerId from, std::int64_t classes, double dropout = 0);
/// A dense layer called `name` that makes the logits, then the loss, called "loss".
void finish(Network& network, LayerId from, std::int64_t classes, std::string name = "fc");

}  // namespace parsim::networks::zoo
