// A machine of equal links: what the generator `nodes` repeats and offers of 'parsim buy' describe.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "topologies/builder.hpp"

namespace parsim::topologies {

struct MachineShape {
  std::vector<const DeviceModel*> models;  ///< of its devices
  BytesPerSecond intra{}, inter{};         ///< a device's port; a network card's
  Seconds intra_latency{}, inter_latency{};
  std::int64_t cards = 1;                       ///< network cards, at most one a device
  std::optional<LinkKind> within{}, between{};  ///< nothing: the rates are effective
  std::int32_t inside = -1, outside = -1;       ///< provenances of the builder
};

/// Adds a machine and links it to `network`, or to nothing if that is invalid. Returns the switch
/// that a host's processor is linked to.
SwitchId add_machine(ClusterBuilder& builder, const MachineShape& shape, const std::string& name,
                     SwitchId network);

}  // namespace parsim::topologies
