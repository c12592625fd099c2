// What has to go from process to process where each has a device, and memory, of its own: for every
// operation, which part of which tensor a device must have of another before its kernels can run.
#pragma once

#include <vector>

#include "hw/tensor_slices.hpp"

namespace parsim::hw {

/// Part of a tensor of `slice.key.device`, wanted by another.
struct RemoteSlice {
  TensorSlice slice;
  DeviceId to;
};
/// In an order that sender and receiver agree on; nothing for what a device does by itself, and
/// nothing that is empty.
[[nodiscard]] std::vector<RemoteSlice> remote_slices(const ExecDag& dag, OpId op);

}  // namespace parsim::hw
