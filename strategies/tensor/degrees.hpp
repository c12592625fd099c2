// Which degrees of tensor, pipeline and data parallelism a cluster can have.
#pragma once

#include <string>
#include <vector>

#include "strategies/tensor/arrangement.hpp"

namespace parsim::strategies::tensor {

/// Devices in the order in which they form groups: within machines, where groups fit into one;
/// those that are left over in a machine are left out. A group has `context` tensor-parallel ones;
/// if it is larger than a machine, these are within machines.
[[nodiscard]] std::vector<DeviceId> in_groups(const StrategyInput& input,
                                              const std::vector<DeviceId>& devices,
                                              std::size_t tensor, std::size_t context = 1);

/// The orders in which stages may take the devices: as listed, and of unlike ones also type by
/// type, the fastest first and last. Which type a cluster lists first then decides nothing.
[[nodiscard]] std::vector<std::vector<DeviceId>> device_orders(
    const StrategyInput& input, const std::vector<DeviceId>& devices);

/// All degrees whose groups, stages and replicas use all devices; with degrees given, as many
/// devices as possible. Throws InputError if there are none.
[[nodiscard]] std::vector<ParallelDegrees> all_degrees(const StrategyInput& input,
                                                       const std::vector<DeviceId>& devices);

/// All degrees that a user could ask for, those that leave devices out, too, with every number of
/// micro-batches that gives each replica a sample. Of many devices only those that use all, of a
/// batch with many divisors only numbers as in all_degrees. May be empty.
[[nodiscard]] std::vector<ParallelDegrees> every_degrees(const StrategyInput& input,
                                                         const std::vector<DeviceId>& devices);

/// "tensor 2 x pipeline 1 x data 4, 8 micro-batches".
[[nodiscard]] std::string note_of(const ParallelDegrees& degrees);

}  // namespace parsim::strategies::tensor
