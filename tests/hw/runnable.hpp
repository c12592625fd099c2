// Which networks hw/ can run.
#pragma once

#include <vector>

#include "core/errors.hpp"
#include "core/network.hpp"
#include "hw/tensor_slices.hpp"
#include "tests/support/tiny_networks.hpp"

namespace parsim::testing {

/// Whether hw/ has kernels for all its layers.
[[nodiscard]] inline bool runs_on_hardware(const Network& network) {
  try {
    hw::check_runnable(network, network.name);
    return true;
  } catch (const InputError&) {
    return false;
  }
}

/// Tiny networks that hw/ runs, with decoders as LLaMA's.
[[nodiscard]] inline std::vector<Network> runnable_networks() {
  std::vector<Network> networks = tiny_networks();
  for (const bool eager : {true, false}) networks.push_back(tiny_llama(eager));
  std::erase_if(networks, [](const Network& network) { return !runs_on_hardware(network); });
  return networks;
}

/// Channels in multiples of eight, normalised and pooled: windows that overlap and that do not, at
/// edges, and averages.
[[nodiscard]] inline Network pooled_network() {
  Network net{"pooled", {}, {}, {}};
  const auto pool = [&](const char* name, PoolKind kind, Window window, LayerId of, bool counts) {
    return add_layer(net, name, Pool{kind, {window, window}, false, counts}, {of});
  };
  LayerId x = add_input(net, "image", image_shape(3, 9, 9));
  x = add_layer(net, "conv", Conv{16, {{3, 1, 1, 1, 1}, {3, 1, 1, 1, 1}}, 1, false}, {x});
  x = add_layer(net, "norm", Norm{NormKind::batch, true, 0}, {x});
  x = add_layer(net, "relu", Activation{"relu"}, {x});
  const LayerId trunk = pool("overlapping", PoolKind::max, {3, 2, 1, 1, 1}, x, true);
  const LayerId counted = pool("counted", PoolKind::average, {3, 1, 1, 1, 1}, trunk, true);
  const LayerId uncounted = pool("uncounted", PoolKind::average, {3, 1, 1, 1, 1}, trunk, false);
  x = add_layer(net, "add", Combine{"add"}, {counted, uncounted});
  x = add_layer(net, "norm2", Norm{NormKind::batch, false, 0}, {x});
  x = pool("apart", PoolKind::max, {2, 2, 0, 0, 1}, x, true);
  const LayerId halved = pool("halved", PoolKind::average, {2, 2, 0, 0, 1}, trunk, true);
  x = add_layer(net, "joined", Concat{0}, {x, halved, x});
  x = add_layer(net, "flatten", Flatten{}, {x});
  x = add_layer(net, "scores", Dense{5}, {x});
  add_layer(net, "loss", Loss{}, {x});
  return net;
}

/// A network with an activation that hw/ has no kernel for.
[[nodiscard]] inline Network refused_network() {
  Network network = tiny_network("plain");
  for (Layer& layer : network.layers) {
    if (layer.kind.as<Activation>() != nullptr) layer.kind = Activation{"softplus"};
  }
  return network;
}

}  // namespace parsim::testing
