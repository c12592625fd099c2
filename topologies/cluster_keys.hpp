// The keys of cluster files, table by table.
#pragma once

#include <array>
#include <string_view>

#include "topologies/document.hpp"

namespace parsim::topologies {

/// Keys of a device type's rates: those of DeviceModel::peak, then fp8_peak.
inline constexpr std::array<std::string_view, 5> peak_keys{"fp32", "tf32", "fp16", "bf16", "fp8"};

[[nodiscard]] const Keys& cluster_keys();
[[nodiscard]] const Keys& device_type_keys();
/// Where single numbers of a device type come from.
[[nodiscard]] const Keys& number_source_keys();
[[nodiscard]] const Keys& node_keys();
[[nodiscard]] const Keys& node_device_keys();
[[nodiscard]] const Keys& link_keys();
[[nodiscard]] const Keys& override_keys();

}  // namespace parsim::topologies
