#include "topologies/machine.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "topologies/topologies.hpp"

namespace parsim::topologies {

namespace {

constexpr BytesPerSecond unknown_port{120e9};

/// The device table knows what it is a module of, or a card.
bool in_device_table(const DeviceModel& model) {
  const std::vector<DeviceModel>& table = device_models();
  return std::any_of(table.begin(), table.end(),
                     [&](const DeviceModel& known) { return known.name == model.measured_type(); });
}

}  // namespace

Ports::Ports(ClusterBuilder& builder, const GeneratorCall& call, std::string_view rate_key,
             std::string_view kind_key)
    : builder_(builder), call_(call), rate_key_(rate_key), kind_(call.kind(kind_key)) {
  if (!call.has(rate_key)) return;
  rate_ = call.rate(rate_key);
  given_ = builder.add_provenance(call.provenance(rate_key));
}

DeviceInMachine Ports::of(const DeviceModel& model) {
  if (last_.model != &model) last_ = found(model);
  return last_;
}

DeviceInMachine Ports::found(const DeviceModel& model) const {
  if (rate_) return {&model, *rate_, kind_, given_};
  const auto kind = kind_ || !in_device_table(model) ? kind_ : port_kind(model);
  const auto rate = kind ? port_rate(*kind) : std::nullopt;
  const Provenance source = rate ? Provenance{"*", Label::data_sheet,
                                              fmt::format("{} of a GPU: {}; latency guessed",
                                                          to_text(*kind), to_text(*rate))}
                                 : call_.default_provenance(rate_key_, to_text(unknown_port));
  return {&model, rate.value_or(unknown_port), kind, builder_.add_provenance(source)};
}

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
                     shape.inter_latency, shape.provenance);
  } else if (linked) {
    for (std::int64_t k = 0; k < shape.cards; ++k) {
      cards_of_devices.push_back(builder.add_switch(fmt::format("{}.nic{}", name, k), node));
      builder.add_link(shape.between, Port::of(cards_of_devices.back()), Port::of(network),
                       shape.inter, shape.inter_latency, shape.provenance);
    }
  }
  const auto each = static_cast<std::int64_t>(shape.devices.size());
  for (std::int64_t i = 0; i < each; ++i) {
    const DeviceInMachine& own = shape.devices[static_cast<std::size_t>(i)];
    const DeviceId device = builder.add_device(fmt::format("{}.gpu{}", name, i), *own.model, node);
    builder.add_link(own.kind, Port::of(device), Port::of(middle), own.rate, shape.intra_latency,
                     own.provenance);
    if (cards_of_devices.empty()) continue;
    // Never faster than the port into the switch, or neighbours would communicate through their
    // card.
    const Port card = Port::of(cards_of_devices[static_cast<std::size_t>(i * shape.cards / each)]);
    if (effective_rate(own.kind, own.rate) < shape.inter) {
      builder.add_link(own.kind, Port::of(device), card, own.rate, shape.intra_latency,
                       own.provenance);
    } else {
      builder.add_link(Port::of(device), card, shape.inter, shape.intra_latency, shape.provenance);
    }
  }
  return cards_of_devices.empty() ? middle : cards_of_devices.front();
}

}  // namespace parsim::topologies
