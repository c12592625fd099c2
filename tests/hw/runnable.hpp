// Which networks hw/ can run.
#pragma once

#include "core/errors.hpp"
#include "core/network.hpp"
#include "hw/tensor_slices.hpp"

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

}  // namespace parsim::testing
