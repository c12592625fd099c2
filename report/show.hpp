// What `show` prints in JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/cluster.hpp"
#include "core/network.hpp"

namespace parsim::report {

/// A layer of a network as `show` has it.
struct LayerRow {
  std::string name{}, kind{}, output{};  ///< output: "64x112x112", of a sample
  std::int64_t parameters = 0;           ///< tied ones with each layer that has them
  double forward_flops = 0;              ///< per sample
};
/// By LayerId.
[[nodiscard]] std::vector<LayerRow> layer_rows(const Network& network);

[[nodiscard]] std::string network_json(const Network& network);
/// `bisection`: from the first half of the GPUs to the second; nothing where there are no two.
[[nodiscard]] std::string cluster_json(const Cluster& cluster,
                                       std::optional<BytesPerSecond> bisection);
[[nodiscard]] std::string network_schema();
[[nodiscard]] std::string cluster_report_schema();

}  // namespace parsim::report
