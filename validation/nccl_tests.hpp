// The output of nccl-tests (all_reduce_perf and so on) as a table of collectives.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/csv.hpp"
#include "validation/validation.hpp"

namespace parsim::validation {

/// A row for each size, with the out-of-place time, the collective and what the output says of the
/// ranks: gpu, n_gpus, nodes. Of several machines the output does not name the network: their rows
/// can be predicted if a line of the user's does, or on the cluster of a run.
///
///     # interconnect NVLink4 + 8x400 Gb/s             the user's, anywhere in the file
///     # Collective test starting: all_reduce_perf     or the name in the file's name
///     #  Rank  0 Group  0 Pid 1887 on  worker-1 device  0 [0x8d] NVIDIA H100 80GB HBM3
///     #       size         count      type   redop    root     time   algbw   busbw #wrong ...
///          1048576        262144     float     sum      -1    27.76   37.78   66.11      0 ...
///
/// Nothing for a text without such a head line. Throws InputError if ranks or the collective are
/// not named, or ranks have unlike GPUs or unlike machines, and as sim::read_collective_tables.
[[nodiscard]] std::optional<CsvTable> read_nccl_tests(std::string_view text,
                                                      const std::string& file);

/// Whether the row is of several machines whose network is not named.
[[nodiscard]] bool lacks_network(const Claim& claim);
/// Such a row as if measured on the first machines of `cluster` (as --cluster).
void take_network_of(Claim& claim, const std::string& cluster);

}  // namespace parsim::validation
