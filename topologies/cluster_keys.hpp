// The keys of cluster files, table by table.
#pragma once

#include "topologies/keys.hpp"

namespace parsim::topologies {

[[nodiscard]] const Keys& cluster_keys();
[[nodiscard]] const Keys& device_type_keys();
/// Where single numbers of a device type come from.
[[nodiscard]] const Keys& number_source_keys();
[[nodiscard]] const Keys& node_keys();
[[nodiscard]] const Keys& node_device_keys();
[[nodiscard]] const Keys& link_keys();
[[nodiscard]] const Keys& override_keys();

}  // namespace parsim::topologies
