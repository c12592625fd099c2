// DAGs that calibration makes up: messages of growing sizes between all devices, and the line
// through their times; walks through memory.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "core/profile.hpp"

namespace parsim::hw {

/// Sizes of messages: 4 KiB, four times as much, and so on until `largest` (256 MiB at most).
[[nodiscard]] std::vector<Bytes> message_sizes(Bytes largest);

/// A transfer of each size between every two devices, both ways; nothing depends on anything.
[[nodiscard]] ExecDag link_dag(std::size_t devices, const std::vector<Bytes>& sizes);

/// An update of so many bytes of weights on every device, operation by device.
[[nodiscard]] ExecDag walk_dag(std::size_t devices, Bytes weights);

/// The line latency + bytes / rate whose relative errors have the least squares. Nothing if fewer
/// than two sizes were measured or time does not grow with size.
[[nodiscard]] std::optional<LinkFit> fit_link(DeviceId from, DeviceId to,
                                              const std::vector<std::pair<Bytes, Seconds>>& times);

/// Rate and latency of each device's link to a switch in the middle, so that paths over the switch
/// come near the fits: a path is as fast as the slower of its links, and their latencies add up.
/// Nothing if a device has no fit.
[[nodiscard]] std::vector<std::pair<BytesPerSecond, Seconds>> star_links(
    std::size_t devices, const std::vector<LinkFit>& fits);

}  // namespace parsim::hw
