#include "topologies/machine.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace parsim::topologies {

SwitchId add_machine(ClusterBuilder& builder, const MachineShape& shape, const std::string& name,
                     SwitchId network) {
  const NodeId node = builder.add_node(name);
  const SwitchId middle = builder.add_switch(name + ".switch", node);
  const bool linked = network.valid();
  // One network card is linked to the switch. Several are linked to their devices, so that the
  // path with the fewest hops out of the machine leads through the device's own card.
  std::vector<SwitchId> cards_of_devices;
  if (linked && shape.cards == 1) {
    builder.add_link(shape.between, Port::of(middle), Port::of(network), shape.inter,
                     shape.inter_latency, shape.outside);
  } else if (linked) {
    for (std::int64_t k = 0; k < shape.cards; ++k) {
      cards_of_devices.push_back(builder.add_switch(fmt::format("{}.nic{}", name, k), node));
      builder.add_link(shape.between, Port::of(cards_of_devices.back()), Port::of(network),
                       shape.inter, shape.inter_latency, shape.outside);
    }
  }
  const auto each = static_cast<std::int64_t>(shape.models.size());
  for (std::int64_t i = 0; i < each; ++i) {
    const DeviceModel& model = *shape.models[static_cast<std::size_t>(i)];
    const DeviceId device = builder.add_device(fmt::format("{}.gpu{}", name, i), model, node);
    builder.add_link(shape.within, Port::of(device), Port::of(middle), shape.intra,
                     shape.intra_latency, shape.inside);
    if (cards_of_devices.empty()) continue;
    // Never faster than the port into the switch, or neighbours would communicate through their
    // card.
    builder.add_link(Port::of(device),
                     Port::of(cards_of_devices[static_cast<std::size_t>(i * shape.cards / each)]),
                     std::min(shape.intra, shape.inter), shape.intra_latency, shape.outside);
  }
  return cards_of_devices.empty() ? middle : cards_of_devices.front();
}

}  // namespace parsim::topologies
