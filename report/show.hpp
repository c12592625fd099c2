// What `show` prints in JSON.
#pragma once

#include <optional>
#include <string>

#include "core/cluster.hpp"
#include "core/network.hpp"

namespace parsim::report {

[[nodiscard]] std::string network_json(const Network& network);
/// `bisection`: from the first half of the GPUs to the second; nothing where there are no two.
[[nodiscard]] std::string cluster_json(const Cluster& cluster,
                                       std::optional<BytesPerSecond> bisection);
[[nodiscard]] std::string network_schema();
[[nodiscard]] std::string cluster_report_schema();

}  // namespace parsim::report
