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

/// A network with an activation that hw/ has no kernel for.
[[nodiscard]] inline Network refused_network() {
  Network network = tiny_network("plain");
  for (Layer& layer : network.layers) {
    if (layer.kind.as<Activation>() != nullptr) layer.kind = Activation{"softplus"};
  }
  return network;
}

}  // namespace parsim::testing
