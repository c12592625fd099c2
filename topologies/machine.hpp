// A machine of equal links: what the generator `nodes` repeats and offers of 'parsim buy' describe.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "topologies/builder.hpp"
#include "topologies/generator.hpp"

namespace parsim::topologies {

/// A device and its port into the switch of its machine.
struct DeviceInMachine {
  const DeviceModel* model = nullptr;
  BytesPerSecond rate{};
  std::optional<LinkKind> kind{};  ///< nothing: the rate is effective
  std::int32_t provenance = -1;    ///< of the builder
};

struct MachineShape {
  std::vector<DeviceInMachine> devices;
  BytesPerSecond inter{};  ///< a network card's
  Seconds intra_latency{}, inter_latency{};
  std::int64_t cards = 1;             ///< network cards, at most one a device
  std::optional<LinkKind> between{};  ///< nothing: `inter` is effective
  std::int32_t provenance = -1;       ///< of `inter`, of the builder
};

/// The ports of a call's devices into the switches of their machines: of the rate and the kind that
/// the call gives; without a rate, of the data sheet of the device, or of the given kind.
class Ports {
 public:
  /// rate_key, kind_key    the call's options of them
  Ports(ClusterBuilder& builder, const GeneratorCall& call, std::string_view rate_key,
        std::string_view kind_key);

  [[nodiscard]] DeviceInMachine of(const DeviceModel& model);

 private:
  [[nodiscard]] DeviceInMachine found(const DeviceModel& model) const;

  ClusterBuilder& builder_;
  const GeneratorCall& call_;
  std::string_view rate_key_;
  std::optional<BytesPerSecond> rate_;
  std::optional<LinkKind> kind_;
  std::int32_t given_ = -1;
  DeviceInMachine last_;  ///< neighbours are alike
};

/// Adds a machine and links it to `network`, or to nothing if that is invalid. Returns the switch
/// that a host's processor is linked to.
SwitchId add_machine(ClusterBuilder& builder, const MachineShape& shape, const std::string& name,
                     SwitchId network);

}  // namespace parsim::topologies
