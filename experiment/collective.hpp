// Timing one collective, or messages, on a cluster, in the terms of nccl-tests.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/cluster.hpp"
#include "core/cost_model.hpp"
#include "core/executor.hpp"

namespace parsim::experiment {

/// One row of an nccl-tests table.
struct CollectiveTime {
  Bytes size{};  ///< see collective_dag
  Seconds time{};
  BytesPerSecond algorithm_rate{};  ///< size / time
  BytesPerSecond bus_rate{};        ///< algorithm_rate x bus_factor: comparable with a link's rate
};

/// A DAG of one collective over the devices. `size` is what nccl-tests calls size: the buffer of
/// each rank; for all_gather and reduce_scatter the larger of its two buffers, the one that holds
/// all shares. Must be a positive multiple of the 4 bytes of an fp32 element and, for all_to_all,
/// of 4 bytes per device, and what all devices send at most 2^62 bytes; throws InputError (naming
/// --size) if not.
[[nodiscard]] ExecDag collective_dag(CollectiveKind kind, std::span<const DeviceId> devices,
                                     Bytes size);

/// A message of so many bytes from each device to the next, and from the last to the first, all at
/// once, as sendrecv_perf of nccl-tests sends them; bus and algorithm bandwidth are the same.
/// Throws as collective_dag does.
[[nodiscard]] ExecDag send_receive_dag(std::span<const DeviceId> devices, Bytes size);

/// What a collective runs on.
struct Laboratory {
  const Cluster& cluster;
  const CostModel& cost;
  Executor& executor;
};
/// Runs a DAG of one of the functions above and checks the time against its bounds
/// (experiment/checks.hpp). `factor`: bus over algorithm bandwidth.
[[nodiscard]] CollectiveTime time_collective(const ExecDag& dag, Bytes size, double factor,
                                             const Laboratory& laboratory);

/// Sizes of "8B..8GiB": the first, then doubling up to the last, which is included if reached.
/// Throws InputError for an empty or descending range.
[[nodiscard]] std::vector<Bytes> parse_sizes(const std::string& text);

}  // namespace parsim::experiment
