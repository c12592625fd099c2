// Which networks hw/ can run.
#pragma once

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

/// A network with an activation that hw/ has no kernel for.
[[nodiscard]] inline Network refused_network() {
  Network network = tiny_network("plain");
  for (Layer& layer : network.layers) {
    if (layer.kind.as<Activation>() != nullptr) layer.kind = Activation{"softplus"};
  }
  return network;
}

}  // namespace parsim::testing
